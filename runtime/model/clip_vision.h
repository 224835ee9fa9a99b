// Stage "vision_encoder": the CLIP vision tower (Radford et al. 2021) as in transformers' CLIPVisionModel, up
// to the hidden states that the projector reads. Layers behind them are never computed. Frames of videos go
// through it behind the images, their patch grid pooled at the end.
#pragma once

#include "model/encoder_layer.h"
#include "model/stage.h"

namespace mso {

class VisionEncoder : public Stage {
 public:
  VisionEncoder(const LlavaConfig& config, const FlatParameters& parameters, bool recompute);

  // batch.media [images + frames, channels, height, width]
  // → [images · positions + frames · pooled positions, hidden · feature layers]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;

 private:
  struct AllKept : Kept {
    at::Tensor patches;  // [images · patches, channels · patch²]
    NormResult pre_norm;
    std::vector<EncoderLayer::Kept> layers;
  };

  at::Tensor patches_of(const at::Tensor& pixels) const;
  // Rows before the first norm: class and patch embeddings plus positions, [images · (patches + 1), hidden].
  at::Tensor embed(const at::Tensor& patches, int64_t images) const;
  void embed_backward(const at::Tensor& gradient, const at::Tensor& patches, int64_t images,
                      GradientSink& sink) const;
  // Rows of all tokens [images + frames, patches + 1, width] → what the projector reads.
  at::Tensor select(const at::Tensor& features, int64_t images) const;
  // rows += the gradient of all tokens, from that of what the projector reads.
  void select_backward(const at::Tensor& gradient, int64_t images, at::Tensor& rows) const;

  ClipVisionConfig config_;
  std::vector<int64_t> states_;
  bool keep_class_token_, recompute_;
  int64_t frame_pool_ = 1;
  Weight class_embedding_, patch_embedding_, position_embedding_;
  NormWeights pre_norm_;
  std::vector<EncoderLayer> layers_;
  // Backward goes down to this state and no further (0: pre-norm and embeddings too; states_ max: nothing).
  int64_t lowest_ = 0;
  bool embeddings_trainable_ = false;
};

}  // namespace mso
