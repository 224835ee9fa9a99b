// The buffer's depth: doubled when the trainer waits, given back slowly, never outside its bounds.
#include "io/prefetch_depth.h"

#include <gtest/gtest.h>

#include <random>

namespace mso {
namespace {

TEST(BufferDepth, TwoStepsAtLeastEightTimesAtMost) {
  EXPECT_EQ(prefetch_bounds(8, 1).least, 8u);
  EXPECT_EQ(prefetch_bounds(8, 32).least, 64u);
  EXPECT_EQ(prefetch_bounds(0, 0).least, 1u);
  EXPECT_EQ(prefetch_bounds(4, 1).most, 32u);
}

TEST(BufferDepth, GrowsAtOnceAndShrinksSlowly) {
  BufferDepth depth({4, 32});
  EXPECT_EQ(depth.depth(), 4u);
  for (uint64_t expected : {8u, 16u, 32u, 32u}) {
    depth.observe({true, 0, 2});
    EXPECT_EQ(depth.depth(), expected);
  }
  for (int i = 0; i < BufferDepth::kCalmSteps - 1; ++i) depth.observe({false, 30, 2});
  EXPECT_EQ(depth.depth(), 32u);
  depth.observe({false, 30, 2});
  EXPECT_EQ(depth.depth(), 30u);
  for (int i = 0; i < BufferDepth::kCalmSteps - 1; ++i) depth.observe({false, 30, 2});
  depth.observe({false, 1, 2});  // nearly empty: not calm any more
  for (int i = 0; i < BufferDepth::kCalmSteps - 1; ++i) depth.observe({false, 30, 2});
  EXPECT_EQ(depth.depth(), 30u);
  depth.set_bounds({8, 16});
  EXPECT_EQ(depth.depth(), 16u);
}

TEST(BufferDepth, NeverLeavesItsBounds) {
  std::mt19937 random(1);
  BufferDepth depth({5, 40});
  for (int i = 0; i < 20'000; ++i) {
    depth.observe({random() % 50 == 0, random() % 45, random() % 7});
    ASSERT_GE(depth.depth(), 5u);
    ASSERT_LE(depth.depth(), 40u);
  }
}

}  // namespace
}  // namespace mso
