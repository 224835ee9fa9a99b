// AdamW (Loshchilov & Hutter 2019) as one fused pass over flat memory; no torch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mso {

struct AdamWParameters {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  int64_t step = 1;           // 1 for the first step: bias corrections
  double gradient_scale = 1;  // gradients are multiplied by it first (1 / tokens, clipping)
};

// One step on elements [0, n), with the formula and the order of roundings of torch.optim.AdamW (amsgrad
// off):
//   w ← w (1 − lr·decay);  m ← m + (1 − β1)(g − m);  v ← β2 v + (1 − β2) g²
//   w ← w − lr / (1 − β1^t) · m / (√v / √(1 − β2^t) + eps)
// Element-wise, so any split into ranges gives the same bits.
void adamw_step(float* master, float* exp_avg, float* exp_avg_sq, const float* gradient, size_t n,
                const AdamWParameters& parameters);

}  // namespace mso
