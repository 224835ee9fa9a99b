// A layer of the encoders: norm, attention in both directions, norm, two-layer perceptron, as CLIP's vision tower and
// Whisper's encoder have it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/linear.h"
#include "model/ops.h"

namespace mso {

// What families call the parts of a layer, and how their numbers are.
struct EncoderLayerForm {
  std::string norm1, norm2, fc1, fc2;  // behind the layer's name; attention is "self_attn" everywhere
  bool key_bias = true;
  double eps = 1e-5;
  Activation activation = Activation::kGelu;
  AttentionShape attention;
};

class EncoderLayer {
 public:
  // `name` ends with a dot: "….layers.3.".
  EncoderLayer(const FlatParameters& parameters, const std::string& name, const EncoderLayerForm& form);

  // What backward needs: all of it, or with recomputation norm1.sum, the layer's input, alone.
  struct Kept {
    NormResult norm1, norm2;
    at::Tensor qkv, fc1;
    AttentionResult attention;
  };

  // Rows [R, hidden] of samples of these lengths. The input of the layer is input + delta (where defined); so is its
  // output {sum, delta}. `kept` may be null.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& input, const at::Tensor& delta,
                                            const std::vector<int64_t>& lengths, Kept* kept) const;
  // `gradient` of the output becomes that of the input. Uses `kept` up.
  void backward(Kept& kept, at::Tensor& gradient, const std::vector<int64_t>& lengths, GradientSink& sink) const;

  bool trainable() const { return trainable_; }

 private:
  NormWeights norm1_, norm2_;
  LinearWeights qkv_, out_, fc1_, fc2_;
  Activation activation_;
  AttentionShape attention_;
  bool trainable_ = false;
};

}  // namespace mso
