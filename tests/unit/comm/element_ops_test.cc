// The element functions of the CUDA kernels, run on the CPU.
#include "comm/element_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "comm/reduce.h"

namespace mso {
namespace {

TEST(ElementOps, ReduceElementHasTheBitsOfTheCpuReduction) {
  const size_t count = 300;
  for (int ranks = 1; ranks <= 6; ++ranks) {
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(count));
    std::vector<const void*> pointers;
    for (int r = 0; r < ranks; ++r) {
      for (size_t i = 0; i < count; ++i) {
        inputs[r][i] = float((random_uniform({uint64_t(r), i}) - 0.5) * std::ldexp(1.0, int(i % 40) - 20));
      }
      pointers.push_back(inputs[r].data());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      // Others as the communicator receives them: without the own, a stride apart.
      const size_t stride = count + 4;
      std::vector<float> others(stride * ranks);
      for (int r = 0, slot = 0; r < ranks; ++r) {
        if (r != rank) std::copy(inputs[r].begin(), inputs[r].end(), others.begin() + stride * slot++);
      }
      std::vector<float> expected(count);
      const auto check = [&](ReduceOp op, auto element) {
        reduce_in_order(expected.data(), pointers, count, DType::kF32, op);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(element(inputs[rank].data(), rank, others.data(), stride, ranks, i), expected[i]);
        }
      };
      check(ReduceOp::kSum, reduce_element<SumOp, float>);
      check(ReduceOp::kMax, reduce_element<MaxOp, float>);
      check(ReduceOp::kMin, reduce_element<MinOp, float>);
    }
  }
  const uint64_t a = 0xf0, b = 0x0f;
  EXPECT_EQ((reduce_element<BitOrOp, uint64_t>(&a, 1, &b, 1, 2, 0)), 0xffu);
}

TEST(ElementOps, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(0.0f), 0x0000);
  EXPECT_EQ(f32_to_bf16(-0.0f), 0x8000);
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(-2.0f), 0xc000);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // a tie, to even, upwards
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // overflows to infinity
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x00000001u)), 0x0000);  // smallest denormal
  // NaNs whose payload would be cut off stay NaNs.
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0xffffffffu)))));
}

TEST(ElementOps, EveryBFloat16SurvivesTheWayThereAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_bf16(value), bits);
  }
}

TEST(ElementOps, BFloat16IsTheNearestOfItsNeighbours) {
  for (uint64_t i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random_bits({i})));
    if (!std::isfinite(value)) continue;
    const uint16_t rounded = f32_to_bf16(value);
    const double error = std::abs(double(bf16_to_f32(rounded)) - value);
    if (!std::isfinite(bf16_to_f32(rounded))) continue;
    for (int step : {-1, 1}) {
      const float neighbour = bf16_to_f32(static_cast<uint16_t>(rounded + step));
      if (!std::isfinite(neighbour)) continue;
      ASSERT_LE(error, std::abs(double(neighbour) - value));
    }
  }
}

}  // namespace
}  // namespace mso
