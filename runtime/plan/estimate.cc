#include "plan/estimate.h"

#include <algorithm>
#include <set>

namespace mso {

namespace {

constexpr int64_t kFloat = 4;
// Master weight and two moments of an element; gradients that level 0 keeps beside a full state (kMaxDeltas of
// ckpt/delta.h).
constexpr int64_t kOptimizerElement = 3 * kFloat;
constexpr int64_t kKeptGradients = 3;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int64_t MemoryEstimate::total() const {
  int64_t sum = kept_gradients + staging + buckets + decoded_ahead;
  for (const StageMemory& stage : stages) sum += stage.total();
  return sum;
}

MemoryEstimate estimate_memory(const ModelSummary& model, const Config& config, int ranks) {
  MemoryEstimate estimate;
  const bool bf16 = config.train.precision == "bf16";
  std::set<std::string> gradient_flows;  // stages whose activations the backward pass needs
  for (const StageSummary& stage : model.stages) {
    StageMemory memory;
    memory.name = stage.name;
    memory.weights = kFloat * stage.parameters;
    memory.compute_copy = bf16 ? 2 * stage.parameters : 0;
    memory.gradients = kFloat * stage.trainable_parameters;
    memory.optimizer = kOptimizerElement * ceil_div(stage.trainable_parameters, ranks);
    const bool flows = stage.trainable_parameters > 0 || std::ranges::any_of(stage.inputs, [&](const std::string& input) {
                         return gradient_flows.contains(input);
                       });
    if (flows) gradient_flows.insert(stage.name);
    const int64_t elements =
        config.model.activation_recomputation ? stage.recomputed_elements : stage.activation_elements;
    if (flows) memory.activations = elements * config.data.micro_batch_tokens * (bf16 ? 2 : kFloat);
    estimate.stages.push_back(std::move(memory));
  }
  const int64_t shard = ceil_div(model.trainable_parameters(), ranks);
  estimate.kept_gradients = (kKeptGradients + 1) * kFloat * shard;
  const SnapshotIntervals intervals = snapshot_intervals(config);
  if (intervals.level1_s > 0 || intervals.level2_s > 0) estimate.staging = kOptimizerElement * shard;
  // Two buckets are on their way at a time: one arriving, one leaving.
  const auto bucket = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20));
  estimate.buckets = std::min(2 * bucket, kFloat * model.trainable_parameters());
  const int64_t samples = ceil_div(config.train.global_batch_samples, ranks);
  const int64_t side = config.data.image_size.value_or(model.image_size);
  // Two batches at least (io/prefetch_depth.h); the loader's memory limit bounds what more it reads ahead.
  estimate.decoded_ahead = std::max(config.mdp.prefetch_depth.image, 2 * samples) * 3 * kFloat * side * side;
  return estimate;
}

SnapshotSizes estimate_snapshots(const ModelSummary& model, const Config& config, int ranks, int nodes) {
  SnapshotSizes sizes;
  nodes = std::clamp(nodes, 1, ranks);
  sizes.partner = config.ecm.level0_partner == "auto" && nodes > 1;
  const int64_t trainable = model.trainable_parameters();
  const int64_t shard = ceil_div(trainable, ranks);
  const int64_t ranks_on_node = ceil_div(ranks, nodes);
  const SnapshotIntervals intervals = snapshot_intervals(config);
  auto level = [&](double interval_s, int64_t bytes_per_element, int64_t copies) {
    LevelSize size;
    size.on = interval_s > 0;
    size.interval_s = interval_s;
    if (!size.on) return size;
    size.rank_generation = bytes_per_element * shard;
    size.total_generation = bytes_per_element * trainable;
    size.node_kept = size.rank_generation * ranks_on_node * config.ecm.keep * copies;
    size.total_kept = size.total_generation * config.ecm.keep * copies;
    size.bytes_per_s = static_cast<double>(size.total_generation * copies) / interval_s;
    return size;
  };
  sizes.level0 =
      level(intervals.level0_s, kOptimizerElement + kKeptGradients * kFloat, sizes.partner ? 2 : 1);
  if (sizes.level0.on) {
    const double elements = static_cast<double>(trainable * (sizes.partner ? 2 : 1));
    sizes.level0.delta_bytes_per_s = sizes.level0.bytes_per_s / (kKeptGradients + 1);
    sizes.level0.bytes_per_s = elements * kOptimizerElement / intervals.level0_s;
  }
  sizes.level1 = level(intervals.level1_s, config.ecm.level1_optimizer ? kOptimizerElement : kFloat, 1);
  sizes.level2 = level(intervals.level2_s, kOptimizerElement, 1);
  return sizes;
}

}  // namespace mso
