#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "plan/estimate.h"

namespace mso {

using nlohmann::json;

namespace {

// Calls visit(name, member) for each field, so that JSON, comparison and checks name the same ones.
template <typename S, typename Visit>
void visit_stage(S& stage, const Visit& visit) {
  visit("name", stage.name);
  visit("first_rank", stage.first_rank);
  visit("ranks", stage.ranks);
  visit("data_parallel", stage.data_parallel);
  visit("tensor_parallel", stage.tensor_parallel);
  visit("pipeline_parallel", stage.pipeline_parallel);
  visit("expert_parallel", stage.expert_parallel);
  visit("precision", stage.precision);
  visit("memory_slice_bytes", stage.memory_slice_bytes);
  visit("micro_batch_positions", stage.micro_batch_positions);
}

template <typename P, typename Visit>
void visit_plan(P& plan, const Visit& visit) {
  visit("ranks", plan.ranks);
  visit("bucket_elements", plan.bucket_elements);
  visit("threads_per_rank", plan.threads_per_rank);
  visit("gradient_collective", plan.gradient_collective);
  visit("weight_collective", plan.weight_collective);
}

struct WriteTo {
  json& into;
  template <typename T>
  void operator()(const char* name, const T& value) const {
    into[name] = value;
  }
};

struct ReadFrom {
  const json& from;
  const std::string& source;
  template <typename T>
  void operator()(const char* name, T& value) const {
    const auto found = from.find(name);
    const bool fits = found != from.end() &&
                      (std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer());
    if (!fits)
      throw Error("the plan cannot be read", source + ": " + name + " is missing or of the wrong type");
    value = found->get<T>();
  }
};

std::string text_of(int64_t value) {
  return std::to_string(value);
}

json fields(const StagePlan& stage) {
  json out;
  visit_stage(stage, WriteTo{out});
  return out;
}

std::string shown(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void diff_fields(const json& before, const json& after, const std::string& prefix,
                 std::vector<std::string>& out) {
  for (const auto& [name, value] : before.items())
    if (after.at(name) != value)
      out.push_back(prefix + name + ": " + shown(value) + " → " + shown(after.at(name)));
}

}  // namespace

Plan make_data_parallel_plan(const ModelSummary& model, const Config& config, int ranks) {
  if (ranks < 1) throw Error("no plan", text_of(ranks) + " ranks", "one rank at least", ExitCode::kBadUsage);
  Plan plan;
  plan.ranks = ranks;
  // Tensors start at multiples of 16 elements, so does a bucket.
  plan.bucket_elements =
      std::max<int64_t>(static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20) / 4) / 16 * 16, 16);
  plan.threads_per_rank = config.parallel.threads_per_rank;
  plan.gradient_collective = "reduce_scatter";
  plan.weight_collective = "all_gather";
  const MemoryEstimate memory = estimate_memory(model, config, ranks);
  for (size_t i = 0; i < model.stages.size(); ++i) {
    StagePlan stage;
    stage.name = model.stages[i].name;
    stage.ranks = stage.data_parallel = ranks;
    stage.precision = config.train.precision;
    stage.memory_slice_bytes = memory.stages[i].total();
    stage.micro_batch_positions = config.data.micro_batch_tokens;
    plan.stages.push_back(std::move(stage));
  }
  check_plan(plan);
  return plan;
}

void check_plan(const Plan& plan) {
  auto refuse = [](const std::string& on, const std::string& message) {
    throw Error("the plan contradicts itself", on + ": " + message, "", ExitCode::kBadUsage);
  };
  if (plan.ranks < 1) refuse("ranks", text_of(plan.ranks));
  if (plan.bucket_elements < 1) refuse("bucket_elements", text_of(plan.bucket_elements));
  if (plan.threads_per_rank < 1) refuse("threads_per_rank", text_of(plan.threads_per_rank));
  if (plan.stages.empty()) refuse("stages", "none");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    for (size_t j = 0; j < i; ++j)
      if (plan.stages[j].name == stage.name) refuse(stage.name, "there are two stages of this name");
    for (int64_t degree : {stage.data_parallel, stage.tensor_parallel, stage.pipeline_parallel,
                           stage.expert_parallel, stage.ranks})
      if (degree < 1 || degree > (1 << 20)) refuse(stage.name, "a degree of " + text_of(degree));
    if (stage.first_rank < 0 || stage.first_rank > plan.ranks - stage.ranks)
      refuse(stage.name, "ranks " + text_of(stage.first_rank) + " to " +
                             text_of(stage.first_rank + stage.ranks - 1) + " of " + text_of(plan.ranks));
    // Dividing instead of multiplying: products of damaged numbers may overflow.
    if (stage.ranks % stage.data_parallel || stage.ranks / stage.data_parallel % stage.tensor_parallel ||
        stage.ranks / stage.data_parallel / stage.tensor_parallel != stage.pipeline_parallel)
      refuse(stage.name, "data × tensor × pipeline degrees are not its " + text_of(stage.ranks) + " ranks");
    if (stage.data_parallel % stage.expert_parallel)
      refuse(stage.name, "the expert degree does not divide the data parallel degree");
    if (stage.precision != "fp32" && stage.precision != "bf16")
      refuse(stage.name, "precision " + stage.precision);
    if (stage.micro_batch_positions < 1 || stage.memory_slice_bytes < 0)
      refuse(stage.name, "a size below its minimum");
  }
}

json plan_to_json(const Plan& plan) {
  json out;
  visit_plan(plan, WriteTo{out});
  out["stages"] = json::array();
  for (const StagePlan& stage : plan.stages) out["stages"].push_back(fields(stage));
  return out;
}

Plan plan_from_json(const json& from, const std::string& source) {
  if (!from.is_object() || !from.contains("stages") || !from["stages"].is_array())
    throw Error("the plan cannot be read", source + ": not a plan");
  Plan plan;
  visit_plan(plan, ReadFrom{from, source});
  for (const json& entry : from["stages"]) {
    StagePlan stage;
    if (!entry.is_object()) throw Error("the plan cannot be read", source + ": a stage is not a map");
    visit_stage(stage, ReadFrom{entry, source});
    plan.stages.push_back(std::move(stage));
  }
  try {
    check_plan(plan);
  } catch (const Error& error) {
    throw Error("the plan cannot be used", source + ": " + error.on(), "", error.exit_code());
  }
  return plan;
}

std::vector<std::string> diff_plan(const Plan& old_plan, const Plan& new_plan) {
  std::vector<std::string> out;
  json before, after;
  visit_plan(old_plan, WriteTo{before});
  visit_plan(new_plan, WriteTo{after});
  diff_fields(before, after, "", out);
  for (const StagePlan& stage : old_plan.stages) {
    const auto other = std::ranges::find(new_plan.stages, stage.name, &StagePlan::name);
    if (other == new_plan.stages.end())
      out.push_back(stage.name + ": gone");
    else
      diff_fields(fields(stage), fields(*other), stage.name + ".", out);
  }
  for (const StagePlan& stage : new_plan.stages)
    if (std::ranges::find(old_plan.stages, stage.name, &StagePlan::name) == old_plan.stages.end())
      out.push_back(stage.name + ": new");
  if (out.empty() && old_plan != new_plan) out.push_back("stages: in another order");
  return out;
}

bool same_numerics(const Plan& a, const Plan& b) {
  Plan left = a, right = b;
  for (Plan* plan : {&left, &right})
    for (StagePlan& stage : plan->stages) stage.memory_slice_bytes = 0;
  return left == right;
}

}  // namespace mso
