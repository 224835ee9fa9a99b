// Stage "llm_decoder": token embeddings with media features put in, Llama decoder layers (Touvron et al.
// 2023) over packed samples, final norm. The head belongs to the loss stage, which computes logits only where
// they are read.
#pragma once

#include "model/linear.h"
#include "model/ops.h"
#include "model/stage.h"

namespace mso {

// inv_freq [head_dim / 2] as transformers computes it, scaling included.
at::Tensor rotary_frequencies(const LlamaConfig& config);

class LlmDecoder : public Stage {
 public:
  LlmDecoder(const LlamaConfig& config, const FlatParameters& parameters, bool recompute);
  void reads(const std::string& stage) { info_.inputs.push_back(stage); }  // beside the projector

  // input: media features [P, hidden] (undefined for text) → normed rows [L, hidden] at batch.rows, or [T,
  // hidden]
  at::Tensor forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) override;
  at::Tensor backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                      bool want_input_gradient, GradientSink& sink) override;
  bool trainable() const override { return info_.trainable; }
  // The embedding, for a head that is tied to it.
  const Weight& embedding() const { return embedding_; }

 private:
  struct Layer {
    NormWeights norm1, norm2;
    LinearWeights qkv, out, gate_up, down;
    bool trainable = false;
  };
  struct LayerKept {
    NormResult norm1, norm2;
    at::Tensor qkv, gate_up;
    AttentionResult attention;
    at::Tensor attended_rows;  // the rows of attention.out that go on
  };
  struct AllKept : Kept {
    std::vector<LayerKept> layers;
    NormResult final_norm;
    std::vector<bool> media;  // [T] positions filled with features
  };

  // `rows` defined: only these positions go on after attention (nobody reads the others).
  std::pair<at::Tensor, at::Tensor> layer_forward(const Layer& layer, const at::Tensor& input,
                                                  const at::Tensor& delta, const StageBatch& batch,
                                                  const at::Tensor& rows, LayerKept* kept) const;
  void layer_backward(const Layer& layer, LayerKept& kept, at::Tensor& gradient, const StageBatch& batch,
                      const at::Tensor& rows, GradientSink& sink) const;

  LlamaConfig config_;
  bool recompute_;
  Weight embedding_;
  std::vector<Layer> layers_;
  NormWeights final_norm_;
  AttentionShape attention_;
  int64_t lowest_ = 0;  // first layer with something to train
};

}  // namespace mso
