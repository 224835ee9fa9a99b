// The kernels of kernels.h on tensors, and attention over packed samples. All tensors contiguous unless said.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "model/flat_parameters.h"
#include "model/hf_config.h"
#include "model/stage.h"

namespace mso {

struct NormWeights {
  NormWeights() = default;
  NormWeights(const FlatParameters& parameters, const std::string& module, double eps, bool has_bias);
  Weight weight, bias;  // no bias: RMSNorm; else LayerNorm
  float eps = 1e-5f;
  bool trainable() const { return weight.trainable() || bias.trainable(); }
};

// What a norm hands on: `sum` = input + residual (or the input itself), `y` = norm(sum), statistics for
// backward.
struct NormResult {
  at::Tensor sum, y, mean, rstd;
};
// RMSNorm or LayerNorm of input (+ residual where defined), rows [R, C].
NormResult norm(const at::Tensor& input, const at::Tensor& residual, const NormWeights& weights);
// grad_x += the gradient of sum; adds and reports the weights' gradients.
void norm_backward(const at::Tensor& grad_y, const NormResult& forward, const NormWeights& weights,
                   at::Tensor& grad_x, GradientSink& sink);

at::Tensor swiglu(const at::Tensor& gate_up);                   // [R, 2C] → [R, C]
void swiglu_backward(at::Tensor& grad_y, at::Tensor& gate_up);  // grad_y becomes y, gate_up its gradient
at::Tensor activate(const at::Tensor& x, Activation activation);
// grad_y becomes y, x its gradient; adds column sums of that to bias_gradient (float32) where defined.
void activate_backward(at::Tensor& grad_y, at::Tensor& x, Activation activation, at::Tensor bias_gradient);
void rotary(at::Tensor& qkv, int64_t heads, int64_t head_dim, const at::Tensor& cos, const at::Tensor& sin,
            bool inverse);
double cross_entropy(at::Tensor& logits, const int64_t* targets, bool gradient);
void add_column_sums(const at::Tensor& x, at::Tensor sums);  // sums (float32) += Σ_rows x
void add_in_place(at::Tensor& y, const at::Tensor& x);       // y += x

// Adds rows of `gradient` to rows tokens[t] of `table_gradient` (float32), one after the other: the same sum
// each time. Rows with skip[t] are left out.
void embedding_gradient(const at::Tensor& gradient, const int64_t* tokens, const std::vector<bool>& skip,
                        at::Tensor table_gradient);

// Softmax attention of each sample with itself. A row of qkv holds `heads` queries, `kv_heads` keys and as
// many values.
struct AttentionShape {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = true;
  int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
};
struct AttentionResult {
  at::Tensor out;                // [T, heads · head_dim]
  std::vector<at::Tensor> sums;  // log-sum-exp of each call, for backward
};
AttentionResult attention(const at::Tensor& qkv, const std::vector<int64_t>& lengths,
                          const AttentionShape& shape);
at::Tensor attention_backward(const at::Tensor& grad_out, const at::Tensor& qkv,
                              const AttentionResult& forward, const std::vector<int64_t>& lengths,
                              const AttentionShape& shape);

}  // namespace mso
