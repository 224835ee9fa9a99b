// Rolling forward over kept gradients against the optimizer's own steps: the same state, bit by bit, also
// from another cut into shards.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "base/random.h"
#include "exec/sharded_optimizer.h"

namespace mso {
namespace {

class StubGraph : public TrainingGraph {
 public:
  StubGraph()
      : layout_(make_flat_layout({{"a.weight", "vision_encoder", {37, 5}, 0, 0},
                                  {"a.bias", "vision_encoder", {5}, 0, 0},
                                  {"b.weight", "llm_decoder", {64, 33}, 0, 0},
                                  {"b.norm.weight", "llm_decoder", {7}, 0, 0}})),
        weights_(layout_.size),
        gradients_(layout_.size) {
    for (size_t i = 0; i < layout_.size; ++i) weights_[i] = static_cast<float>(random_uniform({i, 1}) - 0.5);
  }
  const std::vector<StageInfo>& stages() const override { return stages_; }
  const FlatLayout& layout() const override { return layout_; }
  float* weights() override { return weights_.data(); }
  float* gradients() override { return gradients_.data(); }
  void weights_changed(size_t, size_t) override { ++changes; }
  const FlatLayout& frozen_layout() const override { return frozen_; }
  float* frozen_weights() override { return nullptr; }
  void frozen_weights_changed() override {}
  LossSums forward_backward(const MicroBatch&, const std::function<void(size_t)>&) override { return {}; }
  LossSums evaluate(const MicroBatch&) override { return {}; }
  at::Tensor logits(const MicroBatch&) override { return {}; }
  int changes = 0;

 private:
  FlatLayout layout_, frozen_;
  std::vector<float> weights_, gradients_;
  std::vector<StageInfo> stages_;
};

OptimizerOptions options() {
  OptimizerOptions result;
  result.clip_norm = 0.01;
  result.gradient_buffers = kMaxDeltas + 1;
  result.groups = {{"vision_encoder", 0.3, 0.02}};
  return result;
}

struct Optimizer {
  explicit Optimizer(size_t bucket_elements)
      : group(make_single_communicator("test")),
        optimizer(graph, *group, plan_buckets(graph.layout(), bucket_elements, 1), options()) {}
  StubGraph graph;
  std::unique_ptr<Communicator> group;
  ShardedOptimizer optimizer;
};

void fill_gradient(ShardedOptimizer& optimizer, uint64_t step) {
  for (size_t i = 0; i < optimizer.shard_size(); ++i)
    optimizer.gradient_shard(step)[i] = static_cast<float>(random_uniform({i, step, 7}) - 0.4) * 300;
}

void copy_state(const ShardedOptimizer& from, ShardedOptimizer& to) {
  const std::vector<StateBuffer> buffers = from.state_buffers();
  const std::vector<TargetBuffer> targets = to.load_targets();
  for (size_t i = 0; i < buffers.size(); ++i)
    std::memcpy(targets[i].data, buffers[i].data, buffers[i].count * sizeof(float));
}

void expect_same(const ShardedOptimizer& a, const ShardedOptimizer& b, uint64_t step) {
  const std::vector<StateBuffer> x = a.state_buffers(), y = b.state_buffers();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(std::memcmp(x[i].data, y[i].data, x[i].count * sizeof(float)), 0)
        << x[i].name << " after step " << step;
}

TEST(OptimizerMemory, IsMasterMomentsAndKeptGradientsOfTheShard) {
  const StubGraph graph;
  const std::vector<Bucket> buckets = plan_buckets(graph.layout(), 500, 3);
  std::map<std::string, uint64_t> sum;
  for (int rank = 0; rank < 3; ++rank)
    for (const auto& [stage, bytes] : optimizer_bytes(graph.layout(), buckets, rank, 4)) sum[stage] += bytes;
  // 37·5 → 192, 5 → 16; 64·33 = 2112, 7 → 16 elements; (3 + 4) floats each.
  EXPECT_EQ(sum, (std::map<std::string, uint64_t>{{"llm_decoder", (2112 + 16) * 28}, {"vision_encoder", (192 + 16) * 28}}));
}

TEST(RollForward, EqualsTheStepsBitByBit) {
  Optimizer trained(500), wrong(500),
      resumed(100000);  // other buckets: one rank's shard is the same, the passes are not
  auto rate = [](uint64_t step) { return 1e-3 / static_cast<double>(step); };
  for (uint64_t step = 1; step <= 2; ++step) {
    fill_gradient(trained.optimizer, step);
    trained.optimizer.step(step, rate(step), trained.optimizer.gradient_square(step), 123, 10);
  }
  copy_state(trained.optimizer, resumed.optimizer);
  copy_state(trained.optimizer, wrong.optimizer);
  std::vector<double> squares;
  for (uint64_t step = 3; step <= 5; ++step) {
    fill_gradient(trained.optimizer, step);
    squares.push_back(trained.optimizer.gradient_square(step));
    const auto outcome = trained.optimizer.step(step, rate(step), squares.back(), 123, 10);
    EXPECT_LT(outcome.clip_factor, 1);
  }
  // All three gradients are still there, as a snapshot would read them.
  const int changes = resumed.graph.changes;
  for (uint64_t step = 3; step <= 5; ++step) {
    const StateBuffer kept = trained.optimizer.gradient_state(step);
    TargetBuffer target = resumed.optimizer.gradient_target(step);
    EXPECT_EQ(kept.name, "gradient." + std::to_string(step));
    EXPECT_EQ(kept.name, target.name);
    ASSERT_EQ(kept.count, target.count);
    std::memcpy(target.data, kept.data, kept.count * sizeof(float));
    resumed.optimizer.roll_forward(step, rate(step), squares[step - 3], 123);
  }
  expect_same(trained.optimizer, resumed.optimizer, 5);
  EXPECT_EQ(resumed.graph.changes, changes);  // weights are published once, at the end
  resumed.optimizer.publish_weights(10);
  EXPECT_EQ(std::memcmp(trained.graph.weights(), resumed.graph.weights(),
                        trained.graph.layout().size * sizeof(float)),
            0);
  // The same with a slightly wrong norm in the last step shows.
  for (uint64_t step = 3; step <= 5; ++step) {
    fill_gradient(wrong.optimizer, step);
    wrong.optimizer.roll_forward(step, rate(step), squares[step - 3] * (step == 5 ? 1.01 : 1), 123);
  }
  EXPECT_NE(std::memcmp(wrong.optimizer.state_buffers()[0].data, trained.optimizer.state_buffers()[0].data,
                        trained.optimizer.shard_size() * sizeof(float)),
            0);
}

TEST(RollForward, AStepWithoutLabelsChangesNothing) {
  Optimizer a(500), b(500);
  fill_gradient(a.optimizer, 1);
  a.optimizer.roll_forward(1, 1e-3, 0, 0);
  expect_same(a.optimizer, b.optimizer, 1);
}

TEST(RollForward, FourStepsOfGradientsDoNotOverlap) {
  Optimizer a(500);
  for (uint64_t step = 10; step < 14; ++step)
    for (uint64_t other = 10; other < 14; ++other)
      EXPECT_EQ(a.optimizer.gradient_shard(step) == a.optimizer.gradient_shard(other), step == other);
  EXPECT_EQ(a.optimizer.gradient_shard(10), a.optimizer.gradient_shard(14));
}

}  // namespace
}  // namespace mso
