// The LLaVA family: stages vision_encoder → projector → llm_decoder → loss over flat parameters; for a model with sound
// audio_encoder → audio_projector → llm_decoder too.
#pragma once

#include <memory>
#include <optional>

#include "model/clip_vision.h"
#include "model/llama_decoder.h"
#include "model/loss.h"
#include "model/projector.h"
#include "model/training_graph.h"
#include "model/whisper_encoder.h"

namespace mso {

class LlavaGraph : public TrainingGraph {
 public:
  explicit LlavaGraph(const ModelOptions& options);

  const std::vector<StageInfo>& stages() const override { return infos_; }
  const FlatLayout& layout() const override { return parameters_.layouts().trainable; }
  float* weights() override { return parameters_.weights(); }
  float* gradients() override { return parameters_.gradients(); }
  void weights_changed(size_t begin, size_t end) override { parameters_.weights_changed(begin, end); }
  const FlatLayout& frozen_layout() const override { return parameters_.layouts().frozen; }
  float* frozen_weights() override { return parameters_.frozen_weights(); }
  void frozen_weights_changed() override { parameters_.frozen_weights_changed(); }

  LossSums forward_backward(const MicroBatch& batch, const std::function<void(size_t)>& on_gradient) override;
  LossSums evaluate(const MicroBatch& batch) override;
  at::Tensor logits(const MicroBatch& batch) override;

 private:
  LlavaGraph(const ModelOptions& options, ModelOutline outline);
  // Checks the micro-batch (Error on what does not fit the model) and prepares what stages share.
  StageBatch prepare(const MicroBatch& batch, bool all_rows) const;
  // The two ways of features into the decoder: an encoder and its projector.
  struct Branch {
    Stage *encoder, *projector;
    std::unique_ptr<Kept> encoder_kept = {}, projector_kept = {};
    int64_t rows = 0;  // of its features
    bool trainable() const { return encoder->trainable() || projector->trainable(); }
  };
  std::vector<Branch> branches(const StageBatch& batch);  // those with something to do, in the order of their features
  // Features of all media at batch.media_positions; undefined without any.
  static at::Tensor features(const StageBatch& batch, std::vector<Branch>& branches, bool keep);

  LlavaConfig config_;
  FlatParameters parameters_;
  at::Tensor frequencies_;  // [head_dim / 2]
  VisionEncoder vision_;
  Projector projector_;
  std::optional<WhisperEncoder> audio_;
  std::optional<AudioProjector> audio_projector_;
  LlmDecoder decoder_;
  LossStage loss_;
  std::vector<StageInfo> infos_;
};

}  // namespace mso
