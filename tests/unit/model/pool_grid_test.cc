// Pooling of frames and of sounds, against sums written out, and its gradient as the transposed map.
#include "model/pool_grid.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace mso {
namespace {

at::Tensor noise(std::vector<int64_t> shape, uint64_t key) {
  at::Tensor t = at::zeros(shape, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data_ptr<float>()[i] = static_cast<float>(random_uniform({key, static_cast<uint64_t>(i)}) * 2 - 1);
  return t;
}

double dot(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.numel(), b.numel());
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += double{x.data_ptr<float>()[i]} * y.data_ptr<float>()[i];
  return sum;
}

TEST(PoolGrid, IsTheMeanOfSquaresAndLeavesTheBorderOut) {
  for (const int64_t side : {1, 2, 4, 7})
    for (const int64_t pool : {1, 2, 3}) {
      if (pool > side) continue;
      const int64_t squares = side / pool, width = 3, frames = 2;
      // A part of larger rows, as behind the class token.
      const at::Tensor features = noise({frames, side * side + 1, width}, 1).narrow(1, 1, side * side);
      const at::Tensor pooled = pool_grid(features, side, pool);
      ASSERT_EQ(pooled.sizes(), (std::vector<int64_t>{frames * squares * squares, width}));
      for (int64_t f = 0; f < frames; ++f)
        for (int64_t y = 0; y < squares; ++y)
          for (int64_t x = 0; x < squares; ++x)
            for (int64_t c = 0; c < width; ++c) {
              double sum = 0;
              for (int64_t dy = 0; dy < pool; ++dy)
                for (int64_t dx = 0; dx < pool; ++dx)
                  sum += features[f][(y * pool + dy) * side + x * pool + dx][c].item<float>();
              EXPECT_NEAR(pooled[(f * squares + y) * squares + x][c].item<float>(), sum / double(pool * pool), 1e-6);
            }
      // <pool(a), b> = <a, poolᵀ(b)>, added to what is there.
      const at::Tensor b = noise({frames * squares * squares, width}, 2);
      at::Tensor gradient = noise({frames, side * side, width}, 3);
      const at::Tensor before = gradient.clone();
      pool_grid_backward(b, side, pool, gradient);
      EXPECT_NEAR(dot(features, gradient) - dot(features, before), dot(pooled, b), 1e-5);
    }
}

TEST(PoolPairs, IsTheMeanOfTwoRowsWithinAClip) {
  for (const int64_t length : {2, 3, 8, 9}) {
    const int64_t clips = 3, width = 5, pairs = length / 2;
    const at::Tensor rows = noise({clips * length, width}, 4), pooled = pool_pairs(rows, length);
    ASSERT_EQ(pooled.sizes(), (std::vector<int64_t>{clips * pairs, width}));
    for (int64_t clip = 0; clip < clips; ++clip)
      for (int64_t p = 0; p < pairs; ++p)
        for (int64_t c = 0; c < width; ++c)
          EXPECT_FLOAT_EQ(pooled[clip * pairs + p][c].item<float>(),
                          (rows[clip * length + 2 * p][c].item<float>() +
                           rows[clip * length + 2 * p + 1][c].item<float>()) / 2);
    const at::Tensor b = noise({clips * pairs, width}, 5);
    EXPECT_NEAR(dot(rows, pool_pairs_backward(b, length)), dot(pooled, b), 1e-5);
  }
}

}  // namespace
}  // namespace mso
