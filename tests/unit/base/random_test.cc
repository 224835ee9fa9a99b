// The order of samples: a keyed permutation must be a bijection for every size, and change with the key.
#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace mso {
namespace {

TEST(KeyedPermutation, IsABijectionForEverySmallSizeAndSomeLarge) {
  std::vector<uint64_t> sizes;
  for (uint64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(), {1023, 1024, 1025, 65537, 100003});
  for (uint64_t n : sizes) {
    KeyedPermutation permutation(n, 42);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      uint64_t value = permutation(i);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << n;
      seen[value] = true;
    }
  }
}

TEST(KeyedPermutation, KeysGiveDifferentOrders) {
  KeyedPermutation a(1000, 1), b(1000, 2), again(1000, 1);
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same += a(i) == b(i);
    EXPECT_EQ(a(i), again(i));
  }
  EXPECT_LT(same, 20);  // one coincidence expected for random orders
}

TEST(RandomUniform, HasMeanOneHalf) {
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) sum += random_uniform({7, i});
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

}  // namespace
}  // namespace mso
