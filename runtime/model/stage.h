// Stage: a named piece of a model with parameters, a forward and a backward. What forward keeps for backward
// lies outside the stage, so that several micro-batches can be in flight (pipeline schedules).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "io/micro_batch.h"
#include "memory/slice_scope.h"
#include "model/training_graph.h"

namespace mso {

// A micro-batch as the stages share it: checked, and with what several stages need computed once.
struct StageBatch {
  const MicroBatch* batch = nullptr;
  at::Tensor tokens;             // [T] int64
  // [P] int64, undefined without media: positions of images, then of video frames, then of sounds.
  at::Tensor media_positions;
  bool media_gradient = false;  // whether what makes any of the media features is trained
  at::Tensor media;             // pixel values of images, then of frames, in the compute type; undefined without
  int64_t images = 0;           // of `media`; the rest are frames
  at::Tensor sound;             // log-mel features in the compute type [clips, mel bins, frames]; undefined without
  at::Tensor cos, sin;           // [T, head_dim / 2] float32, rotary tables
  std::vector<int64_t> lengths;  // of the samples
  // Positions whose output is read ([L] int64); undefined: all of them. The last decoder layer computes
  // nothing else.
  at::Tensor rows;
  std::vector<int64_t> targets;  // [L] label of each row
};

// Tells the trainer which gradients are final; each at most once per micro-batch.
class GradientSink {
 public:
  GradientSink(size_t count, const std::function<void(size_t)>& callback)
      : sent_(count), callback_(callback) {}
  void ready(int64_t index) {
    if (index < 0 || sent_[static_cast<size_t>(index)]) return;
    sent_[static_cast<size_t>(index)] = true;
    if (callback_) callback_(static_cast<size_t>(index));
  }
  void ready(const std::vector<int64_t>& indices) {
    for (int64_t index : indices) ready(index);
  }
  // Everything not yet sent, from the last tensor to the first, as backward would have come by.
  void flush() {
    for (size_t i = sent_.size(); i-- > 0;) ready(static_cast<int64_t>(i));
  }

 private:
  std::vector<bool> sent_;
  const std::function<void(size_t)>& callback_;
};

// Base of what a stage keeps from forward to backward.
struct Kept {
  virtual ~Kept() = default;
};

class Stage {
 public:
  explicit Stage(StageInfo info) : info_(std::move(info)) {}
  virtual ~Stage() = default;
  const StageInfo& info() const { return info_; }

  // `input`: rows the previous stage made (undefined for the first). With `kept`, keeps what backward needs.
  virtual at::Tensor forward(const StageBatch& batch, const at::Tensor& input,
                             std::unique_ptr<Kept>* kept) = 0;
  // `gradient` of forward's result, which may be overwritten. Adds the parameters' gradients, reports them to
  // `sink`, and returns the gradient of `input` when asked for (else undefined).
  virtual at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                              bool want_input_gradient, GradientSink& sink) = 0;
  // Whether backward has anything to do when the gradient of its input is not wanted.
  virtual bool trainable() const { return info_.trainable; }

 protected:
  StageInfo info_;
};

// A stage's work, its tensors charged to the stage's memory slice.
inline at::Tensor run_forward(Stage& stage, const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) {
  const SliceScope scope(stage.info().name);
  return stage.forward(batch, input, kept);
}
inline at::Tensor run_backward(Stage& stage, const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                               bool want_input_gradient, GradientSink& sink) {
  const SliceScope scope(stage.info().name);
  return stage.backward(batch, std::move(kept), std::move(gradient), want_input_gradient, sink);
}

}  // namespace mso
