// Element-wise and row-wise loops of the layers, fused, on plain memory (no torch): forward and backward, for
// float32 and bfloat16 storage, always computed in float32. Each works on whole rows of a row-major matrix,
// so a caller may split rows over threads without changing a bit; sums over rows go to partial rows the
// caller adds up.
#pragma once

#include <cstdint>

namespace mso {

// Bits of a bfloat16, so that kernels need no torch header.
struct BFloat16Bits {
  uint16_t bits;
};

// All pointers row-major; `rows` rows of `cols` elements. Aliasing is allowed only where said. MSO_KERNELS
// declares every kernel for one storage type.
#define MSO_KERNELS(T)                                                                                       \
  /* RMSNorm (Zhang & Sennrich 2019) as in Llama: y = w x / sqrt(mean(x^2) + eps), after x = input +         \
   * residual. */                                                                                            \
  /* residual may be null, then sum is not written; else sum = x (may be `input`). rstd [rows] is for        \
   * backward. */                                                                                            \
  void rms_norm(const T* input, const T* residual, T* sum, const T* weight, float eps, T* y, float* rstd,    \
                int64_t rows, int64_t cols);                                                                 \
  /* grad_x = (or += with accumulate) the gradient; weight_partial [cols] += its gradient (null: not         \
   * wanted). */                                                                                             \
  void rms_norm_backward(const T* grad_y, const T* x, const float* rstd, const T* weight, T* grad_x,         \
                         bool accumulate, float* weight_partial, int64_t rows, int64_t cols);                \
  /* LayerNorm (Ba et al. 2016), residual as above. */                                                       \
  void layer_norm(const T* input, const T* residual, T* sum, const T* weight, const T* bias, float eps,      \
                  T* y, float* mean, float* rstd, int64_t rows, int64_t cols);                               \
  void layer_norm_backward(const T* grad_y, const T* x, const float* mean, const float* rstd,                \
                           const T* weight, T* grad_x, bool accumulate, float* weight_partial,               \
                           float* bias_partial, int64_t rows, int64_t cols);                                 \
  /* SwiGLU (Shazeer 2020): y = silu(gate) up; a row of gate_up is `cols` of gate, then `cols` of up. */     \
  void swiglu(const T* gate_up, T* y, int64_t rows, int64_t cols);                                           \
  /* gate_up is replaced by its gradient, grad_y by y (for the weight gradient of the product that follows). \
   */                                                                                                        \
  void swiglu_backward(T* grad_y, T* gate_up, int64_t rows, int64_t cols);                                   \
  /* y = x sigmoid(1.702 x), and y = x Phi(x) (Hendrycks & Gimpel 2016); y may be x. */                      \
  void quick_gelu(const T* x, T* y, int64_t count);                                                          \
  void gelu(const T* x, T* y, int64_t count);                                                                \
  /* x is replaced by its gradient, grad_y by y; bias_partial [cols] += sum over rows of the former (or      \
   * null). */                                                                                               \
  void quick_gelu_backward(T* grad_y, T* x, float* bias_partial, int64_t rows, int64_t cols);                \
  void gelu_backward(T* grad_y, T* x, float* bias_partial, int64_t rows, int64_t cols);                      \
  /* Rotary embedding (Su et al. 2021), half-split form, in place on the first `heads` heads of each row of  \
   */                                                                                                        \
  /* `stride` elements. cos, sin: [rows, head_dim / 2]. inverse: the transposed rotation (backward). */      \
  void rotary(T* x, int64_t stride, int64_t heads, int64_t head_dim, const float* cos, const float* sin,     \
              bool inverse, int64_t rows);                                                                   \
  /* Sum over rows of the cross entropy against targets[row]; with gradient, logits become softmax - onehot. \
   */                                                                                                        \
  double cross_entropy(T* logits, const int64_t* targets, bool gradient, int64_t rows, int64_t cols);        \
  void add_bias(T* x, const T* bias, int64_t rows, int64_t cols);        /* each row += bias */              \
  void column_sums(const T* x, float* sums, int64_t rows, int64_t cols); /* sums [cols] += sum over rows */  \
  void accumulate(const T* x, T* y, int64_t count);                      /* y += x */

MSO_KERNELS(float)
MSO_KERNELS(BFloat16Bits)

// sum += x in float32.
void accumulate(const BFloat16Bits* x, float* sum, int64_t count);
// Round to nearest even.
void to_bf16(const float* from, BFloat16Bits* to, int64_t count);

}  // namespace mso
