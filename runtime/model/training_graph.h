// A model as the trainer sees it: a graph of named stages over flat buffers. What a stage computes is in its
// own file; where it runs and in which precision is the plan's business.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/flat_layout.h"
#include "io/micro_batch.h"
#include "model/model_options.h"

namespace mso {

// Sums over the micro-batch, never means: the trainer divides by the global batch's tokens.
struct LossSums {
  double loss = 0;     // summed cross entropy of the labelled positions
  int64_t labels = 0;  // how many
};

// What a stage is, for plans and listings. The executor runs stages in the order of
// `TrainingGraph::stages()`.
struct StageInfo {
  std::string name;                 // "vision_encoder", "projector", "audio_encoder", "audio_projector", "llm_decoder"…
  std::vector<std::string> inputs;  // stages whose output it reads
  bool needs_media = false;         // idle for micro-batches without that medium
  bool trainable = true;            // false: frozen, has no gradient and no optimizer state
  int64_t parameters = 0;
  double flops_per_position = 0;  // forward, multiply-add = 2, for the cost model
};

class TrainingGraph {
 public:
  virtual ~TrainingGraph() = default;

  virtual const std::vector<StageInfo>& stages() const = 0;

  // Trainable parameters. Weights are float32 in `weights()`; with ComputeType::kBF16 the stages compute from
  // a bfloat16 copy that weights_changed() refreshes. Gradients are float32, same layout, zeroed by the
  // trainer.
  virtual const FlatLayout& layout() const = 0;
  virtual float* weights() = 0;    // [layout().size]
  virtual float* gradients() = 0;  // [layout().size]
  // Call after writing weights()[begin, end): refreshes what is derived from them.
  virtual void weights_changed(size_t begin, size_t end) = 0;

  // Frozen parameters: exported and read by the stages, never stepped.
  virtual const FlatLayout& frozen_layout() const = 0;
  virtual float* frozen_weights() = 0;
  // Call after writing frozen_weights() (a resume that restores them).
  virtual void frozen_weights_changed() = 0;

  // Forward and backward of one micro-batch; adds the gradient of `LossSums::loss` to gradients().
  // `on_gradient(i)` is called during backward when tensor i of layout() has its final value for this call,
  // and after it for the tensors that took no part (text-only batch, unused layer), each i exactly once.
  virtual LossSums forward_backward(const MicroBatch& batch,
                                    const std::function<void(size_t)>& on_gradient) = 0;
  // Forward only.
  virtual LossSums evaluate(const MicroBatch& batch) = 0;
  // Logits [T, vocabulary] float32 at every position (parity, export checks).
  virtual at::Tensor logits(const MicroBatch& batch) = 0;
};

// Builds the graph of the options' model with its weights in place and gradients zero.
std::unique_ptr<TrainingGraph> build_graph(const ModelOptions& options);

}  // namespace mso
