// Stage "vision_encoder": the CLIP vision tower (Radford et al. 2021) as in transformers' CLIPVisionModel, up
// to the hidden states that the projector reads. Layers behind them are never computed.
#pragma once

#include "model/linear.h"
#include "model/ops.h"
#include "model/stage.h"

namespace mso {

class VisionEncoder : public Stage {
 public:
  VisionEncoder(const LlavaConfig& config, const FlatParameters& parameters, bool recompute);

  // batch.media [images, channels, height, width] → [images · positions, hidden · feature layers]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;

 private:
  struct Layer {
    NormWeights norm1, norm2;
    LinearWeights qkv, out, fc1, fc2;
    bool trainable = false;
  };
  // What a layer keeps: all of it, or with recomputation its input alone.
  struct LayerKept {
    NormResult norm1, norm2;
    at::Tensor qkv, fc1;
    AttentionResult attention;
  };
  struct AllKept : Kept {
    at::Tensor patches;  // [images · patches, channels · patch²]
    NormResult pre_norm;
    std::vector<LayerKept> layers;
  };

  at::Tensor patches_of(const at::Tensor& pixels) const;
  // Rows before the first norm: class and patch embeddings plus positions, [images · (patches + 1), hidden].
  at::Tensor embed(const at::Tensor& patches, int64_t images) const;
  void embed_backward(const at::Tensor& gradient, const at::Tensor& patches, int64_t images,
                      GradientSink& sink) const;
  // The input of the layer is input + delta; so is its output {sum, delta}. `kept` may be null.
  std::pair<at::Tensor, at::Tensor> layer_forward(const Layer& layer, const at::Tensor& input,
                                                  const at::Tensor& delta,
                                                  const std::vector<int64_t>& lengths, LayerKept* kept) const;
  void layer_backward(const Layer& layer, LayerKept& kept, at::Tensor& gradient,
                      const std::vector<int64_t>& lengths, GradientSink& sink) const;

  ClipVisionConfig config_;
  std::vector<int64_t> states_;
  bool keep_class_token_, recompute_;
  Weight class_embedding_, patch_embedding_, position_embedding_;
  NormWeights pre_norm_;
  std::vector<Layer> layers_;
  AttentionShape attention_;
  // Backward goes down to this state and no further (0: pre-norm and embeddings too; states_ max: nothing).
  int64_t lowest_ = 0;
  bool embeddings_trainable_ = false;
};

}  // namespace mso
