#include "exec/adamw.h"

#include <cmath>

#include "base/simd.h"

namespace mso {

namespace {

struct Factors {
  float scale, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction2, eps;
};

MSO_SIMD_CLONES void step_all(float* __restrict master, float* __restrict exp_avg,
                              float* __restrict exp_avg_sq, const float* __restrict gradient, size_t n,
                              Factors f) {
  for (size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * f.scale;
    const float w = master[i] * f.decay;
    const float m = exp_avg[i] + f.one_minus_beta1 * (g - exp_avg[i]);
    const float v = exp_avg_sq[i] * f.beta2 + f.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(v) / f.root_correction2 + f.eps;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = w - f.step_size * m / denominator;
  }
}

}  // namespace

void adamw_step(float* master, float* exp_avg, float* exp_avg_sq, const float* gradient, size_t n,
                const AdamWParameters& p) {
  const double correction1 = 1 - std::pow(p.beta1, static_cast<double>(p.step));
  const double correction2 = 1 - std::pow(p.beta2, static_cast<double>(p.step));
  const Factors factors{static_cast<float>(p.gradient_scale),
                        static_cast<float>(1 - p.lr * p.weight_decay),
                        static_cast<float>(1 - p.beta1),
                        static_cast<float>(p.beta2),
                        static_cast<float>(1 - p.beta2),
                        static_cast<float>(p.lr / correction1),
                        static_cast<float>(std::sqrt(correction2)),
                        static_cast<float>(p.eps)};
  step_all(master, exp_avg, exp_avg_sq, gradient, n, factors);
}

}  // namespace mso
