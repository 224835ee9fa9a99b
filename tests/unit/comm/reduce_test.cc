#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace mso {
namespace {

template <typename T>
std::vector<std::vector<T>> random_inputs(size_t ranks, size_t count) {
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < count; ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        // Of very different sizes, so that another order of sums shows.
        inputs[r][i] =
            T((random_uniform({r, i, 1}) - 0.5) * std::ldexp(1.0, int(random_bits({r, i, 2}) % 40) - 20));
      } else {
        inputs[r][i] = static_cast<T>(random_bits({r, i}));
      }
    }
  }
  return inputs;
}

template <typename T>
void check(DType dtype, ReduceOp op, T (*one)(T, T)) {
  for (size_t ranks : {1, 2, 3, 4, 7}) {
    for (size_t count : {0, 1, 5, 16, 1000, 5000}) {
      const auto inputs = random_inputs<T>(ranks, count);
      std::vector<T> expected = inputs[0];
      for (size_t r = 1; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) expected[i] = one(expected[i], inputs[r][i]);
      }
      // Into memory of its own, and into each of the inputs.
      for (size_t target = 0; target <= ranks; ++target) {
        auto copy = inputs;
        copy.push_back(std::vector<T>(count));
        std::vector<const void*> pointers;
        for (size_t r = 0; r < ranks; ++r) pointers.push_back(copy[r].data());
        reduce_in_order(copy[target].data(), pointers, count, dtype, op);
        ASSERT_EQ(copy[target], expected) << ranks << " ranks, " << count << " elements into " << target;
      }
    }
  }
}

TEST(Reduce, EqualsThePlainLoopInEveryTypeAndPlace) {
  check<float>(DType::kF32, ReduceOp::kSum, [](float a, float b) { return a + b; });
  check<float>(DType::kF32, ReduceOp::kMax, [](float a, float b) { return std::max(a, b); });
  check<float>(DType::kF32, ReduceOp::kMin, [](float a, float b) { return std::min(a, b); });
  check<double>(DType::kF64, ReduceOp::kSum, [](double a, double b) { return a + b; });
  check<double>(DType::kF64, ReduceOp::kMax, [](double a, double b) { return std::max(a, b); });
  check<double>(DType::kF64, ReduceOp::kMin, [](double a, double b) { return std::min(a, b); });
  check<int64_t>(DType::kI64, ReduceOp::kSum,
                 [](int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); });
  check<int64_t>(DType::kI64, ReduceOp::kMax, [](int64_t a, int64_t b) { return std::max(a, b); });
  check<int64_t>(DType::kI64, ReduceOp::kMin, [](int64_t a, int64_t b) { return std::min(a, b); });
  check<uint64_t>(DType::kU64, ReduceOp::kSum, [](uint64_t a, uint64_t b) { return a + b; });
  check<uint64_t>(DType::kU64, ReduceOp::kMax, [](uint64_t a, uint64_t b) { return std::max(a, b); });
  check<uint64_t>(DType::kU64, ReduceOp::kMin, [](uint64_t a, uint64_t b) { return std::min(a, b); });
  check<uint64_t>(DType::kU64, ReduceOp::kBitOr, [](uint64_t a, uint64_t b) { return a | b; });
}

TEST(Reduce, NotANumberInAnyContributionStaysInTheSum) {
  const float nan = std::nanf(""), one = 1;
  float out = 0;
  const void* first[] = {&nan, &one};
  reduce_in_order(&out, first, 1, DType::kF32, ReduceOp::kSum);
  EXPECT_TRUE(std::isnan(out));
  const void* second[] = {&one, &nan};
  reduce_in_order(&out, second, 1, DType::kF32, ReduceOp::kSum);
  EXPECT_TRUE(std::isnan(out));
}

TEST(Reduce, RefusesWhatItCannotDo) {
  EXPECT_THROW(check_reducible(DType::kBF16, ReduceOp::kSum), Error);
  EXPECT_THROW(check_reducible(DType::kF32, ReduceOp::kBitOr), Error);
  EXPECT_THROW(check_reducible(DType::kI64, ReduceOp::kBitOr), Error);
  EXPECT_NO_THROW(check_reducible(DType::kU64, ReduceOp::kBitOr));
}

}  // namespace
}  // namespace mso
