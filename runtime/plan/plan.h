// A plan: which ranks hold which stage and how. Plain data, printed, stored with every snapshot, compared;
// code that decides makes plans, code that acts follows them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config.h"
#include "plan/model_summary.h"

namespace mso {

struct StagePlan {
  std::string name;
  int64_t first_rank = 0, ranks = 1;  // [first_rank, first_rank + ranks)
  // Degrees; their product is `ranks` (experts live inside the data parallel group and do not multiply).
  int64_t data_parallel = 1, tensor_parallel = 1, pipeline_parallel = 1, expert_parallel = 1;
  std::string precision;              // compute: fp32 | bf16
  int64_t memory_slice_bytes = 0;     // of a rank's memory: weights, gradients, optimizer shard, activations
  int64_t micro_batch_positions = 0;  // packed positions of a micro-batch at most
  bool operator==(const StagePlan&) const = default;
};

struct Plan {
  int64_t ranks = 1;
  std::vector<StagePlan> stages;  // in the order of the forward pass
  int64_t bucket_elements = 0;    // gradients reduced together
  int64_t threads_per_rank = 1;
  std::string gradient_collective;  // "reduce_scatter"
  std::string weight_collective;    // "all_gather"
  bool operator==(const Plan&) const = default;
};

// Every stage on every rank. Only data parallelism is in force.
Plan make_data_parallel_plan(const ModelSummary& model, const Config& config, int ranks);

// Error (kBadUsage) naming the stage where degrees and ranks contradict each other or a value is out of
// range.
void check_plan(const Plan& plan);

nlohmann::json plan_to_json(const Plan& plan);
// Error naming `source` for what is missing, of the wrong type, or refused by check_plan().
Plan plan_from_json(const nlohmann::json& json, const std::string& source);

// What differs, one line each: "ranks: 2 → 4", "vision_encoder.precision: fp32 → bf16"; empty: equal.
std::vector<std::string> diff_plan(const Plan& old_plan, const Plan& new_plan);
// Whether the same steps give the same bits under both: everything but the memory slices is equal.
bool same_numerics(const Plan& a, const Plan& b);

}  // namespace mso
