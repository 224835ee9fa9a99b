// Learning-rate schedules against values worked out by hand, parameter groups, and the step agreement's encoding.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "exec/learning_rate.h"
#include "exec/parameter_groups.h"
#include "exec/step_agreement.h"

namespace mso {
namespace {

TEST(LearningRate, WarmsUpLinearlyThenFollowsTheCosine) {
  LearningRateSchedule s{1.0, 0.1, 4, 12, "cosine"};
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 8), 0.55);
  EXPECT_NEAR(learning_rate_at(s, 6), 0.1 + 0.9 * (1 + std::cos(std::numbers::pi / 4)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 12), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(s, 1000), 0.1);
}

TEST(LearningRate, LinearAndConstant) {
  EXPECT_DOUBLE_EQ(learning_rate_at({2.0, 0.0, 0, 10, "linear"}, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at({2.0, 0.0, 0, 10, "constant"}, 9), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at({2.0, 0.0, 10, 10, "linear"}, 10), 2.0);  // nothing left to decay over
  EXPECT_THROW(learning_rate_at({2.0, 0.0, 0, 10, "zigzag"}, 1), Error);
}

FlatLayout small_layout() {
  return make_flat_layout({{"a.weight", "vision_encoder", {3, 5}, 0, 0},
                           {"a.bias", "vision_encoder", {5}, 0, 0},
                           {"b.weight", "llm_decoder", {40, 2}, 0, 0},
                           {"b.norm.weight", "llm_decoder", {7}, 0, 0}});
}

TEST(ParameterSettings, NormsAndBiasesAreNotDecayedAndRulesMatchStagesAndGlobs) {
  FlatLayout layout = small_layout();
  auto plain = parameter_settings(layout, 0.1, {});
  EXPECT_EQ(plain[0].weight_decay, 0.1);
  EXPECT_EQ(plain[1].weight_decay, 0.0);
  EXPECT_EQ(plain[3].weight_decay, 0.0);
  auto ruled = parameter_settings(layout, 0.1, {{"vision_encoder", 0.5, -1}, {"b.*.weight", 2.0, 0.3}});
  EXPECT_EQ(ruled[0].learning_rate_scale, 0.5);
  EXPECT_EQ(ruled[0].weight_decay, 0.1);
  EXPECT_EQ(ruled[2].learning_rate_scale, 1.0);
  EXPECT_EQ(ruled[3].learning_rate_scale, 2.0);
  EXPECT_EQ(ruled[3].weight_decay, 0.3);
  EXPECT_THROW(parameter_settings(layout, 0.1, {{"no.such.*", 1, -1}}), Error);
}

TEST(ShardSegments, CoverEveryShardOnceWithTheSettingsOfTheRightTensor) {
  FlatLayout layout = small_layout();
  auto settings = parameter_settings(layout, 0.1, {{"llm_decoder", 3.0, -1}});
  for (size_t bucket_elements : {1u, 30u, 1000u})
    for (int ranks = 1; ranks <= 9; ++ranks) {
      auto buckets = plan_buckets(layout, bucket_elements, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        Shard shard = make_shard(buckets, rank);
        size_t at = 0;
        for (const ShardSegment& segment : segments_of_shard(layout, shard, settings)) {
          ASSERT_EQ(segment.shard_offset, at);
          at += segment.count;
          // Look the setting of each element up by its flat offset, independently of the code under test.
          for (size_t i = 0; i < segment.count; ++i) {
            size_t flat = 0;
            for (const ShardPiece& piece : shard.pieces)
              if (segment.shard_offset + i >= piece.shard_offset &&
                  segment.shard_offset + i < piece.shard_offset + piece.count) {
                flat = piece.flat_offset + segment.shard_offset + i - piece.shard_offset;
                ASSERT_EQ(piece.bucket, segment.bucket);
              }
            for (size_t t = 0; t < layout.tensors.size(); ++t)
              if (flat >= layout.tensors[t].offset && flat < layout.tensors[t].offset + layout.tensors[t].count) {
                ASSERT_EQ(segment.settings, settings[t]);
              }
          }
        }
        ASSERT_EQ(at, shard.size);
      }
    }
}

TEST(StepOpening, SurvivesEncodingForEverySizeAroundAWord) {
  for (size_t n : {0u, 1u, 7u, 8u, 9u, 65u})
    for (size_t bad = 0; bad <= n; ++bad) {
      StepOpening opening;
      opening.codes.resize(n);
      if (bad < n) opening.codes[bad] = static_cast<uint8_t>(255 - bad);
      opening.stop = bad % 2;
      ASSERT_EQ(StepOpening::decode(opening.encode(), n), opening);
    }
}

}  // namespace
}  // namespace mso
