// Plans: made, checked, stored and compared; memory and snapshot sizes by independent arithmetic.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include "plan/plan_report.h"

namespace mso {
namespace {

using nlohmann::json;

ModelSummary model() {
  ModelSummary model;
  model.family = "llava";
  model.stages = {{"vision_encoder", 1000, 800, 1e3, 10, 5},
                  {"projector", 200, 200, 1e2, 4, 4, {"vision_encoder"}},
                  {"llm_decoder", 5000, 5000, 1e4, 40, 8, {"projector"}}};
  model.image_positions = 16;
  model.image_size = 28;
  model.vocabulary = 320;
  return model;
}

Plan plan(int ranks = 4) {
  return make_data_parallel_plan(model(), Config(), ranks);
}

TEST(DataParallelPlan, PutsEveryStageOnEveryRank) {
  const Plan p = plan(3);
  EXPECT_EQ(p.ranks, 3);
  ASSERT_EQ(p.stages.size(), 3u);
  for (const StagePlan& stage : p.stages) {
    EXPECT_EQ(stage.first_rank, 0);
    EXPECT_EQ(stage.ranks, 3);
    EXPECT_EQ(stage.data_parallel, 3);
    EXPECT_EQ(stage.tensor_parallel * stage.pipeline_parallel * stage.expert_parallel, 1);
    EXPECT_EQ(stage.precision, "fp32");
    EXPECT_EQ(stage.micro_batch_positions, 4096);
  }
  EXPECT_EQ(p.bucket_elements, 25 * 1024 * 1024 / 4);
}

TEST(DataParallelPlan, BucketsAreWholeCacheLines) {
  Config config;
  for (double mb : {1e-9, 0.001, 0.3, 7.77}) {
    config.parallel.bucket_mb = mb;
    const Plan p = make_data_parallel_plan(model(), config, 1);
    EXPECT_GE(p.bucket_elements, 16);
    EXPECT_EQ(p.bucket_elements % 16, 0);
  }
}

TEST(DataParallelPlan, NoRanksAreRefused) {
  EXPECT_THROW(plan(0), Error);
  EXPECT_THROW(plan(-2), Error);
}

TEST(PlanJson, ReadsBackEqual) {
  for (int ranks : {1, 2, 7, 4096}) {
    const Plan p = plan(ranks);
    EXPECT_EQ(plan_from_json(json::parse(plan_to_json(p).dump()), "test"), p);
  }
}

TEST(PlanJson, DamageIsNamed) {
  const json good = plan_to_json(plan());
  auto message = [](const json& damaged) -> std::string {
    try {
      plan_from_json(damaged, "step-5/plan");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const json& value : {json(), json("x"), json::array(), json::object()})
    EXPECT_NE(message(value).find("step-5/plan"), std::string::npos);
  for (const auto& [name, ignored] : good.items()) {
    json missing = good, wrong = good;
    missing.erase(name);
    wrong[name] = 1.5;
    EXPECT_NE(message(missing), "") << name;
    EXPECT_NE(message(wrong), "") << name;
  }
  for (const auto& [name, ignored] : good["stages"][0].items()) {
    json missing = good, wrong = good;
    missing["stages"][1].erase(name);
    wrong["stages"][1][name] = json::array();
    EXPECT_NE(message(missing).find(name), std::string::npos) << name;
    EXPECT_NE(message(wrong).find(name), std::string::npos) << name;
  }
  json huge = good;
  huge["stages"][0]["data_parallel"] = int64_t{1} << 62;
  huge["stages"][0]["tensor_parallel"] = int64_t{1} << 62;
  EXPECT_NE(message(huge), "");
}

TEST(CheckPlan, RefusesContradictions) {
  const std::vector<std::function<void(Plan&)>> breaks = {
      [](Plan& p) { p.ranks = 3; },
      [](Plan& p) { p.ranks = 0; },
      [](Plan& p) { p.bucket_elements = 0; },
      [](Plan& p) { p.threads_per_rank = 0; },
      [](Plan& p) { p.stages.clear(); },
      [](Plan& p) { p.stages[1].name = "llm_decoder"; },
      [](Plan& p) { p.stages[1].first_rank = 1; },
      [](Plan& p) { p.stages[1].first_rank = -1; },
      [](Plan& p) { p.stages[1].tensor_parallel = 2; },
      [](Plan& p) { p.stages[1].data_parallel = 3; },
      [](Plan& p) { p.stages[1].expert_parallel = 3; },
      [](Plan& p) { p.stages[1].pipeline_parallel = 0; },
      [](Plan& p) { p.stages[1].precision = "routed"; },
      [](Plan& p) { p.stages[1].micro_batch_positions = 0; },
      [](Plan& p) { p.stages[1].memory_slice_bytes = -1; },
  };
  EXPECT_NO_THROW(check_plan(plan()));
  for (size_t i = 0; i < breaks.size(); ++i) {
    Plan p = plan();
    breaks[i](p);
    EXPECT_THROW(check_plan(p), Error) << "case " << i;
  }
}

TEST(CheckPlan, AcceptsMixesOfDegreesAndStagesOnTheirOwnRanks) {
  Plan p = plan(8);
  p.stages[0].ranks = p.stages[0].data_parallel = 2;
  p.stages[1].first_rank = 2;
  p.stages[1].ranks = 1, p.stages[1].data_parallel = 1;
  p.stages[2].data_parallel = 2, p.stages[2].tensor_parallel = 2, p.stages[2].pipeline_parallel = 2;
  p.stages[2].expert_parallel = 2;
  EXPECT_NO_THROW(check_plan(p));
}

TEST(DiffPlan, NamesWhatChanged) {
  EXPECT_TRUE(diff_plan(plan(), plan()).empty());
  Plan other = plan();
  other.threads_per_rank = 2;
  other.stages[0].precision = "bf16";
  EXPECT_EQ(diff_plan(plan(), other),
            (std::vector<std::string>{"threads_per_rank: 1 → 2", "vision_encoder.precision: fp32 → bf16"}));
  Plan renamed = plan();
  renamed.stages[1].name = "resampler";
  EXPECT_EQ(diff_plan(plan(), renamed), (std::vector<std::string>{"projector: gone", "resampler: new"}));
  Plan swapped = plan();
  std::swap(swapped.stages[0], swapped.stages[1]);
  EXPECT_EQ(diff_plan(plan(), swapped).size(), 1u);
}

TEST(SameNumerics, AskMoreThanMemory) {
  Plan other = plan();
  other.stages[0].memory_slice_bytes += 1;
  EXPECT_TRUE(same_numerics(plan(), other));
  other.bucket_elements += 16;
  EXPECT_FALSE(same_numerics(plan(), other));
  EXPECT_FALSE(same_numerics(plan(2), plan(4)));
}

TEST(MemoryEstimate, AddsUp) {
  Config config;
  config.data.micro_batch_tokens = 100;
  config.train.global_batch_samples = 9;
  config.mdp.prefetch_depth.image = 2;
  const MemoryEstimate m = estimate_memory(model(), config, 4);
  EXPECT_EQ(m.stages[2].weights, 20000);
  EXPECT_EQ(m.stages[2].gradients, 20000);
  EXPECT_EQ(m.stages[2].optimizer, 12 * 1250);
  EXPECT_EQ(m.stages[2].activations, 40 * 100 * 4);
  EXPECT_EQ(m.stages[0].weights, 4000);    // frozen ones too
  EXPECT_EQ(m.stages[0].gradients, 3200);  // trained ones only
  EXPECT_EQ(m.kept_gradients, 16 * 1500);
  EXPECT_EQ(m.staging, 12 * 1500);
  EXPECT_EQ(m.buckets, 4 * 6000);  // the whole model is smaller than two buckets
  EXPECT_EQ(m.decoded_ahead, 2 * 3 * 3 * 28 * 28 * 4);
  EXPECT_EQ(m.total(), (6200 + 6000) * 4 + 12 * (200 + 50 + 1250) + (10 + 4 + 40) * 400 + 16 * 1500 +
                           12 * 1500 + 24000 + 2 * 3 * 3 * 28 * 28 * 4);
}

TEST(MemoryEstimate, BeforeTheFirstTrainedStageNothingIsKept) {
  ModelSummary projector_only = model();
  projector_only.stages[0].trainable_parameters = projector_only.stages[2].trainable_parameters = 0;
  const MemoryEstimate m = estimate_memory(projector_only, Config(), 1);
  EXPECT_EQ(m.stages[0].activations, 0);
  EXPECT_GT(m.stages[2].activations, 0);  // the gradient passes through the frozen decoder
  // A frozen encoder beside others keeps nothing, whatever those train.
  projector_only.stages.insert(projector_only.stages.begin() + 2, {"audio_encoder", 300, 0, 1e2, 4, 4});
  const MemoryEstimate beside = estimate_memory(projector_only, Config(), 1);
  EXPECT_EQ(beside.stages[2].activations, 0);
  EXPECT_EQ(beside.stages[3].activations, m.stages[2].activations);
  EXPECT_EQ(m.stages[2].gradients, 0);
}

TEST(MemoryEstimate, PrecisionRecomputationAndLevelsChangeIt) {
  Config config;
  const MemoryEstimate base = estimate_memory(model(), config, 1);
  config.train.precision = "bf16";
  const MemoryEstimate bf16 = estimate_memory(model(), config, 1);
  EXPECT_EQ(bf16.stages[2].compute_copy, 10000);
  EXPECT_EQ(bf16.stages[2].activations * 2, base.stages[2].activations);
  config.model.activation_recomputation = true;
  EXPECT_EQ(estimate_memory(model(), config, 1).stages[2].activations * 5, bf16.stages[2].activations);
  config.ecm.snapshot_levels.level1_interval_s = config.ecm.snapshot_levels.level2_interval_m = 0;
  EXPECT_EQ(estimate_memory(model(), config, 1).staging, 0);
}

TEST(SnapshotSizes, ByRankAndNode) {
  Config config;
  const SnapshotSizes one = estimate_snapshots(model(), config, 4, 1);
  EXPECT_FALSE(one.partner);
  EXPECT_EQ(one.level0.rank_generation, 24 * 1500);
  EXPECT_EQ(one.level0.node_kept, 24 * 6000 * 2);
  EXPECT_DOUBLE_EQ(one.level0.bytes_per_s, 12 * 6000 / 0.5);  // full states alone
  EXPECT_DOUBLE_EQ(one.level0.delta_bytes_per_s, (12 + 3 * 4) / 4.0 * 6000 / 0.5);
  EXPECT_EQ(one.level1.delta_bytes_per_s, 0);
  EXPECT_EQ(one.level1.total_generation, 12 * 6000);
  EXPECT_DOUBLE_EQ(one.level2.interval_s, 300);

  const SnapshotSizes three = estimate_snapshots(model(), config, 4, 3);  // 2, 1, 1 ranks
  EXPECT_TRUE(three.partner);
  EXPECT_EQ(three.level0.node_kept, 2 * 24 * 1500 * 2 * 2);
  EXPECT_EQ(three.level0.total_kept, 24 * 6000 * 2 * 2);
  EXPECT_DOUBLE_EQ(three.level0.bytes_per_s, 2 * 12 * 6000 / 0.5);
  EXPECT_DOUBLE_EQ(three.level0.delta_bytes_per_s, 2 * 6 * 6000 / 0.5);

  config.ecm.level0_partner = "off";
  config.ecm.level1_optimizer = false;
  config.ecm.keep = 3;
  config.ecm.snapshot_levels.level2_interval_m = 0;
  const SnapshotSizes lean = estimate_snapshots(model(), config, 4, 3);
  EXPECT_FALSE(lean.partner);
  EXPECT_EQ(lean.level0.total_kept, 24 * 6000 * 3);
  EXPECT_EQ(lean.level1.total_generation, 4 * 6000);
  EXPECT_FALSE(lean.level2.on);
  EXPECT_EQ(lean.level2.total_kept, 0);
  // More nodes than ranks: each rank has one.
  EXPECT_EQ(estimate_snapshots(model(), config, 2, 9).level0.node_kept, 24 * 3000 * 3);
}

TEST(SnapshotSizes, AModelWithoutTrainedParametersHasEmptySnapshots) {
  ModelSummary frozen = model();
  for (StageSummary& stage : frozen.stages) stage.trainable_parameters = 0;
  EXPECT_EQ(estimate_snapshots(frozen, Config(), 2, 2).level0.total_kept, 0);
}

TEST(PlanReport, WarnsWhereTheRamDiskIsTooSmallOrNone) {
  PlanReport report;
  report.model = model();
  report.plan = plan();
  report.memory = estimate_memory(report.model, Config(), 4);
  report.snapshots = estimate_snapshots(report.model, Config(), 4, 1);
  report.keep = 2;
  report.ram_disk = {"/dev/shm", true, true, 1 << 30, 24 * 6000 * 3};
  EXPECT_EQ(level0_peak_bytes(report), 24 * 6000 * 3);
  EXPECT_EQ(format_plan_report(report).find("WARNING"), std::string::npos);
  report.ram_disk.free_bytes -= 1;
  EXPECT_NE(format_plan_report(report).find("not enough"), std::string::npos);
  report.ram_disk = {"/scratch", false, false, 1 << 30, 1 << 30};
  const std::string text = format_plan_report(report);
  EXPECT_NE(text.find("not a RAM disk"), std::string::npos);
  EXPECT_NE(text.find("cannot be written"), std::string::npos);
  EXPECT_EQ(plan_report_json(report)["snapshots"]["level0"]["node_kept_bytes"], 24 * 6000 * 2);
}

}  // namespace
}  // namespace mso
