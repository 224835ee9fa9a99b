// linear(): the one function through which every matrix product with a weight goes. Split over ranks,
// deferred weight gradients and precision are decided here and nowhere else.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "model/flat_parameters.h"
#include "model/stage.h"

namespace mso {

// y = x Wᵀ + b for one matrix, or for several with the same input whose outputs lie side by side in y.
// Matrices that are adjacent in the flat buffer make one product.
class LinearWeights {
 public:
  LinearWeights() = default;
  // `names`: of modules ("….q_proj"); their ".weight" is looked up, and ".bias" with has_bias.
  LinearWeights(const FlatParameters& parameters, const std::vector<std::string>& names, bool has_bias)
      : LinearWeights(parameters, names, std::vector<bool>(names.size(), has_bias)) {}
  // Some with a bias and some without (Whisper's keys have none).
  LinearWeights(const FlatParameters& parameters, const std::vector<std::string>& names,
                const std::vector<bool>& has_bias);

  struct Part {
    Weight weight, bias;  // [out, in], [out] (undefined without bias)
    int64_t begin = 0, out = 0;
  };
  std::vector<Part> parts;
  std::vector<int64_t> indices;  // trainable parameters
  int64_t in = 0, out = 0;
  bool trainable() const { return !indices.empty(); }
};

// x [rows, in] → [rows, out]
at::Tensor linear(const at::Tensor& x, const LinearWeights& weights);
// Gradient of x from that of y [rows, out].
at::Tensor linear_input_gradient(const at::Tensor& grad_y, const LinearWeights& weights);
// Adds the gradients of the trainable weights and biases. `bias_done`: the caller has added those of the
// biases.
void linear_weight_gradient(const at::Tensor& grad_y, const at::Tensor& x, const LinearWeights& weights,
                            GradientSink& sink, bool bias_done = false);

}  // namespace mso
