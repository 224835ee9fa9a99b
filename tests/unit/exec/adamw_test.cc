#include "exec/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace mso {
namespace {

std::vector<float> values(uint64_t key, size_t n, double scale) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<float>((random_uniform({key, i}) - 0.5) * scale);
  return v;
}

// Five steps in double precision, as in the documentation of torch.optim.AdamW.
TEST(AdamW, FollowsTheFormula) {
  const size_t n = 1003;
  AdamWParameters p{
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .gradient_scale = 0.25};
  std::vector<float> w = values(1, n, 1), m(n), v(n);
  std::vector<double> rw(w.begin(), w.end()), rm(n), rv(n);
  for (p.step = 1; p.step <= 5; ++p.step) {
    const std::vector<float> g = values(100 + static_cast<uint64_t>(p.step), n, 0.1);
    adamw_step(w.data(), m.data(), v.data(), g.data(), n, p);
    for (size_t i = 0; i < n; ++i) {
      const double gi = g[i] * 0.25;
      rw[i] -= p.lr * p.weight_decay * rw[i];
      rm[i] = p.beta1 * rm[i] + (1 - p.beta1) * gi;
      rv[i] = p.beta2 * rv[i] + (1 - p.beta2) * gi * gi;
      const double mh = rm[i] / (1 - std::pow(p.beta1, p.step)), vh = rv[i] / (1 - std::pow(p.beta2, p.step));
      rw[i] -= p.lr * mh / (std::sqrt(vh) + p.eps);
    }
  }
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(w[i], rw[i], 1e-6);
}

TEST(AdamW, AnySplitGivesTheSameBits) {
  const size_t n = 257;
  const std::vector<float> g = values(7, n, 1), w0 = values(8, n, 1), m0 = values(9, n, 1);
  std::vector<float> v0 = values(10, n, 1);
  for (float& x : v0) x = std::abs(x);
  AdamWParameters p;
  p.step = 3;
  std::vector<float> w = w0, m = m0, v = v0;
  adamw_step(w.data(), m.data(), v.data(), g.data(), n, p);
  for (size_t split = 0; split <= n; split += 5) {
    std::vector<float> w2 = w0, m2 = m0, v2 = v0;
    adamw_step(w2.data(), m2.data(), v2.data(), g.data(), split, p);
    adamw_step(w2.data() + split, m2.data() + split, v2.data() + split, g.data() + split, n - split, p);
    EXPECT_EQ(w, w2);
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
  }
}

}  // namespace
}  // namespace mso
