// One rank: the group of one and the gradient reducer on it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/gradient_reducer.h"

namespace mso {
namespace {

TEST(SingleCommunicator, CopiesAndKeepsTheRulesOfTheOthers) {
  auto group = make_single_communicator("alone");
  EXPECT_EQ(group->size(), 1);
  double sum = 3;
  all_reduce_now(*group, &sum, 1, DType::kF64, ReduceOp::kSum, 1);
  EXPECT_EQ(sum, 3);
  EXPECT_THROW(all_reduce_now(*group, &sum, 1, DType::kBF16, ReduceOp::kSum, 1), Error);
  const float in[2] = {1, 2};
  float out[2] = {};
  group->reduce_scatter(in, out, std::vector<size_t>{2}, DType::kF32, ReduceOp::kSum)->wait(deadline_in(1));
  EXPECT_EQ(out[1], 2);
  EXPECT_THROW(group->all_gather(in, out, std::vector<size_t>{1, 1}, DType::kF32), Error);
  EXPECT_THROW(group->send(in, 4, 1, 0), Error);
  EXPECT_EQ(all_gather_text(*group, "abc", 1), std::vector<std::string>{"abc"});
  EXPECT_EQ(all_gather_text(*group, "", 1), std::vector<std::string>{""});
  EXPECT_EQ(group->split(-1, 0, "none"), nullptr);
  EXPECT_EQ(group->split(3, 0, "part")->name(), "part");
}

TEST(GradientReducer, OneRankCopiesAndMissingMarksAreFlushed) {
  const FlatLayout layout = make_flat_layout(
      {{.name = "a", .stage = "", .shape = {20}}, {.name = "b", .stage = "", .shape = {5}}, {.name = "c", .stage = "", .shape = {40}}});
  const auto buckets = plan_buckets(layout, 30, 1);
  auto group = make_single_communicator("data parallel");
  std::vector<float> gradients(layout.size), shard(make_shard(buckets, 0).size);
  ASSERT_EQ(shard.size(), layout.size);
  GradientReducer reducer(*group, layout, buckets, gradients.data());
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = float(i + 1000 * step);
    reducer.start(shard.data());
    reducer.mark_ready(1);
    if (step == 1) reducer.mark_ready(2);
    const ReduceStatistics statistics = reducer.finish(deadline_in(1));
    EXPECT_EQ(statistics.early_buckets, step == 1 ? 1u : 0u);
    EXPECT_EQ(shard, gradients);
  }
}

TEST(GradientReducer, MistakesAreNamed) {
  const FlatLayout layout = make_flat_layout({{.name = "a", .stage = "", .shape = {20}}});
  auto group = make_single_communicator("data parallel");
  std::vector<float> gradients(layout.size), shard(layout.size);
  EXPECT_THROW(GradientReducer(*group, layout, plan_buckets(layout, 30, 2), gradients.data()), Error);
  GradientReducer reducer(*group, layout, plan_buckets(layout, 30, 1), gradients.data());
  EXPECT_THROW(reducer.mark_ready(0), Error);  // outside a step
  reducer.start(shard.data());
  reducer.mark_ready(0);
  EXPECT_THROW(reducer.mark_ready(0), Error);
  EXPECT_THROW(reducer.mark_ready(7), Error);
  reducer.finish(deadline_in(1));
  EXPECT_THROW(reducer.mark_ready(0), Error);
}

TEST(WeightGatherer, WantsAllBucketsInOrder) {
  const FlatLayout layout = make_flat_layout({{.name = "a", .stage = "", .shape = {20}}, {.name = "b", .stage = "", .shape = {5}}});
  const auto buckets = plan_buckets(layout, 10, 1);
  auto group = make_single_communicator("data parallel");
  std::vector<float> shard(layout.size, 2), weights(layout.size);
  WeightGatherer gatherer(*group, buckets, DType::kF32);
  EXPECT_THROW(gatherer.start(1, shard.data(), weights.data()), Error);
  gatherer.start(0, shard.data(), weights.data());
  EXPECT_THROW(gatherer.finish(deadline_in(1)), Error);
  gatherer.start(1, shard.data(), weights.data());
  gatherer.finish(deadline_in(1));
  EXPECT_EQ(weights, shard);
}

}  // namespace
}  // namespace mso
