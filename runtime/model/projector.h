// From features of an encoder to decoder embeddings: stage "projector", a two-layer perceptron for vision
// (LlavaMultiModalProjector), and stage "audio_projector", one matrix for sound (Qwen2AudioMultiModalProjector).
#pragma once

#include "model/linear.h"
#include "model/ops.h"
#include "model/stage.h"

namespace mso {

class Projector : public Stage {
 public:
  Projector(const LlavaConfig& config, const FlatParameters& parameters);
  // features [P, vision hidden · feature layers] → [P, decoder hidden]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;

 private:
  struct AllKept : Kept {
    at::Tensor input, middle;
  };
  LinearWeights first_, second_;
  Activation activation_;
};

class AudioProjector : public Stage {
 public:
  AudioProjector(const FlatParameters& parameters);
  // features [P, d_model] → [P, decoder hidden]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;

 private:
  struct AllKept : Kept {
    at::Tensor input;
  };
  LinearWeights linear_;
};

}  // namespace mso
