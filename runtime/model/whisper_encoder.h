// Stage "audio_encoder": Whisper's encoder (Radford et al. 2022) with its output pooled by two before the last norm, as in
// transformers' Qwen2AudioEncoder.
#pragma once

#include "model/encoder_layer.h"
#include "model/stage.h"

namespace mso {

class WhisperEncoder : public Stage {
 public:
  WhisperEncoder(const AudioConfig& config, const FlatParameters& parameters, bool recompute);

  // batch.sound [clips, mel bins, mel frames] → [clips · positions_per_clip, d_model]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;

 private:
  // A convolution over time with kernel 3 and one row of zeros on each side, as a product of rows.
  struct Convolution {
    Weight weight, bias;  // [out, in, 3], [out]
    int64_t stride = 1;
    bool trainable() const { return weight.trainable() || bias.trainable(); }
    at::Tensor matrix() const;  // [out, 3 · in]: what a row of windows() is multiplied with
  };
  struct AllKept : Kept {
    at::Tensor windows1, conv1, windows2, conv2;  // inputs of the products, and their results before GELU
    std::vector<EncoderLayer::Kept> layers;
    NormResult last_norm;
  };

  at::Tensor convolve(const Convolution& conv, const at::Tensor& windows) const;
  void convolution_gradient(const Convolution& conv, const at::Tensor& gradient, const at::Tensor& windows,
                            GradientSink& sink) const;
  // GELU(conv1), GELU(conv2) and positions; what `kept` needs is put there where it is not null.
  at::Tensor embed(const at::Tensor& sound, AllKept* kept) const;
  void embed_backward(at::Tensor gradient, AllKept& kept, int64_t clips, GradientSink& sink) const;

  AudioConfig config_;
  bool recompute_;
  Convolution conv1_, conv2_;
  Weight positions_;  // [max_source_positions, d_model], constant
  std::vector<EncoderLayer> layers_;
  NormWeights last_norm_;
  // Backward goes down to this layer and no further (0 with embeddings_trainable_: to the convolutions too).
  int64_t lowest_ = 0;
  bool embeddings_trainable_ = false;
};

}  // namespace mso
