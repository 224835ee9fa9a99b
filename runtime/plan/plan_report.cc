#include "plan/plan_report.h"

#include <algorithm>

#include "base/units.h"

namespace mso {

using nlohmann::json;

namespace {

// Code points, so that "→" and the like take one column.
size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// A table of text cells: column 0 to the left, columns in `left` too, the others to the right.
class Table {
 public:
  explicit Table(std::vector<size_t> left) : left_(std::move(left)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text(const std::string& indent) const {
    std::vector<size_t> widths;
    for (const auto& row : rows_)
      for (size_t i = 0; i < row.size(); ++i) {
        if (widths.size() <= i) widths.push_back(0);
        widths[i] = std::max(widths[i], columns(row[i]));
      }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = indent;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string space(widths[i] - columns(row[i]), ' ');
        const bool left = i == 0 || std::ranges::find(left_, i) != left_.end();
        line += (i ? "  " : "") + (left ? row[i] + space : space + row[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<size_t> left_;
  std::vector<std::vector<std::string>> rows_;
};

std::string bar(double share) {
  constexpr int kWidth = 30;
  const int filled = std::clamp(static_cast<int>(share * kWidth + 0.5), share > 0 ? 1 : 0, kWidth);
  return std::string(static_cast<size_t>(filled), '#');
}

std::string bytes(int64_t count) {
  return format_bytes(static_cast<double>(count));
}

std::string seconds(double s) {
  if (s >= 120 && s == static_cast<double>(static_cast<int64_t>(s / 60)) * 60)
    return std::to_string(static_cast<int64_t>(s / 60)) + " min";
  if (s < 1) return std::to_string(static_cast<int64_t>(s * 1000 + 0.5)) + " ms";
  if (s == static_cast<double>(static_cast<int64_t>(s)))
    return std::to_string(static_cast<int64_t>(s)) + " s";
  return json(s).dump() + " s";
}

std::string rank_range(const StagePlan& stage) {
  return stage.ranks == 1
             ? std::to_string(stage.first_rank)
             : std::to_string(stage.first_rank) + "-" + std::to_string(stage.first_rank + stage.ranks - 1);
}

std::string ram_disk_line(const PlanReport& report) {
  const RamDisk& disk = report.ram_disk;
  const int64_t peak = level0_peak_bytes(report);
  std::string line = "RAM disk " + disk.path.string() + ": " +
                     format_bytes(static_cast<double>(disk.free_bytes)) + " free of " +
                     format_bytes(static_cast<double>(disk.total_bytes)) + "; level 0 needs " + bytes(peak) +
                     " on a node while it writes";
  if (!disk.in_memory) line += "\n  WARNING: this is not a RAM disk (set ecm.level0_path)";
  if (!disk.writable) line += "\n  WARNING: it cannot be written to";
  if (static_cast<uint64_t>(peak) > disk.free_bytes)
    line +=
        "\n  WARNING: not enough: level 0 will be degraded (set ecm.level0_path, lower ecm.keep, or use more "
        "nodes)";
  return line + "\n";
}

json level_json(const LevelSize& level) {
  return {{"on", level.on},
          {"interval_s", level.interval_s},
          {"rank_generation_bytes", level.rank_generation},
          {"node_kept_bytes", level.node_kept},
          {"total_generation_bytes", level.total_generation},
          {"total_kept_bytes", level.total_kept},
          {"bytes_per_s", level.bytes_per_s},
          {"delta_bytes_per_s", level.delta_bytes_per_s}};
}

}  // namespace

int64_t level0_peak_bytes(const PlanReport& report) {
  const int64_t keep = std::max<int64_t>(report.keep, 1);
  return report.snapshots.level0.node_kept / keep * (keep + 1);
}

std::string format_plan_report(const PlanReport& report) {
  const Plan& plan = report.plan;
  std::string out = report.model.family + ": " + format_count(report.model.parameters()) + " parameters, " +
                    format_count(report.model.trainable_parameters()) + " trained; " +
                    std::to_string(plan.ranks) + (plan.ranks == 1 ? " rank" : " ranks") + " on " +
                    std::to_string(report.nodes) + (report.nodes == 1 ? " node" : " nodes") +
                    "; an image takes " + std::to_string(report.model.image_positions) + " positions";
  if (report.model.frame_positions > 0)
    out += ", a video frame " + std::to_string(report.model.frame_positions);
  if (report.model.audio_positions > 0) out += ", a sound " + std::to_string(report.model.audio_positions);
  out += "\n\nStages\n";
  int64_t largest = 1;
  for (const StagePlan& stage : plan.stages) largest = std::max(largest, stage.memory_slice_bytes);
  Table stages({8, 12});
  stages.add({"stage", "ranks", "DP", "TP", "PP", "EP", "parameters", "trained", "compute", "MFLOP/position",
              "micro-batch", "slice", ""});
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    const StageSummary& model = report.model.stages[i];
    char flops[32];
    std::snprintf(flops, sizeof flops, "%.3g", model.flops_per_position / 1e6);
    stages.add({stage.name, rank_range(stage), std::to_string(stage.data_parallel),
                std::to_string(stage.tensor_parallel), std::to_string(stage.pipeline_parallel),
                std::to_string(stage.expert_parallel), format_count(model.parameters),
                model.trainable_parameters ? format_count(model.trainable_parameters) : "frozen",
                stage.precision, flops, std::to_string(stage.micro_batch_positions),
                bytes(stage.memory_slice_bytes),
                bar(static_cast<double>(stage.memory_slice_bytes) / static_cast<double>(largest))});
  }
  out += stages.text("  ");
  out += "  buckets of " + bytes(plan.bucket_elements * 4) + ", " + plan.gradient_collective + " and " +
         plan.weight_collective + ", " + std::to_string(plan.threads_per_rank) +
         (plan.threads_per_rank == 1 ? " thread" : " threads") + " a rank\n";

  out += "\nMemory of a rank (estimate)\n";
  StageMemory sum;
  for (const StageMemory& stage : report.memory.stages) {
    sum.weights += stage.weights;
    sum.compute_copy += stage.compute_copy;
    sum.gradients += stage.gradients;
    sum.optimizer += stage.optimizer;
    sum.activations += stage.activations;
  }
  const std::vector<std::pair<std::string, int64_t>> parts = {
      {"weights, float32", sum.weights},
      {"weights, bfloat16 copy", sum.compute_copy},
      {"gradients", sum.gradients},
      {"optimizer shard", sum.optimizer},
      {"kept gradient shards", report.memory.kept_gradients},
      {"activations, full micro-batch", sum.activations},
      {"gradient buckets", report.memory.buckets},
      {"snapshot staging", report.memory.staging},
      {"pictures decoded ahead", report.memory.decoded_ahead}};
  Table memory({2});
  const double total = std::max<double>(static_cast<double>(report.memory.total()), 1);
  for (const auto& [name, size] : parts)
    if (size > 0) memory.add({name, bytes(size), bar(static_cast<double>(size) / total)});
  memory.add({"total", bytes(report.memory.total()), ""});
  out += memory.text("  ");

  out += "\nSnapshots\n";
  Table levels({2});
  levels.add({"level", "every", "where", "a rank's", "all ranks", "kept", "a node keeps", "written"});
  auto add_level = [&](const char* name, const char* where, const LevelSize& level) {
    if (!level.on)
      levels.add({name, "off", where, "", "", "", "", ""});
    else
      levels.add({name, seconds(level.interval_s), where, bytes(level.rank_generation),
                  bytes(level.total_generation), bytes(level.total_kept),
                  level.node_kept && where == std::string("RAM disk") ? bytes(level.node_kept) : "-",
                  format_bytes(level.bytes_per_s) + "/s"});
  };
  add_level("L0", "RAM disk", report.snapshots.level0);
  add_level("L1", "run folder", report.snapshots.level1);
  add_level("L2", "run folder", report.snapshots.level2);
  out += levels.text("  ");
  out += "  " + std::to_string(report.keep) + " generations of each level" +
         (report.snapshots.partner ? "; level 0 has a copy on a partner node\n"
                                   : "; level 0 has no partner copy\n");
  if (report.snapshots.level0.on) {
    out += "  where a step is longer than level 0's interval, it writes " +
           format_bytes(report.snapshots.level0.delta_bytes_per_s) + "/s at most: a full state, then three gradients\n";
    out += "  " + ram_disk_line(report);
  }
  return out;
}

json plan_report_json(const PlanReport& report) {
  json stages = json::array();
  for (const StageMemory& stage : report.memory.stages)
    stages.push_back({{"name", stage.name},
                      {"weights", stage.weights},
                      {"compute_copy", stage.compute_copy},
                      {"gradients", stage.gradients},
                      {"optimizer", stage.optimizer},
                      {"activations", stage.activations}});
  json model_stages = json::array();
  for (const StageSummary& stage : report.model.stages)
    model_stages.push_back({{"name", stage.name},
                            {"parameters", stage.parameters},
                            {"trainable_parameters", stage.trainable_parameters},
                            {"flops_per_position", stage.flops_per_position}});
  return {{"model",
           {{"family", report.model.family},
            {"parameters", report.model.parameters()},
            {"trainable_parameters", report.model.trainable_parameters()},
            {"image_positions", report.model.image_positions},
            {"frame_positions", report.model.frame_positions},
            {"audio_positions", report.model.audio_positions},
            {"stages", model_stages}}},
          {"plan", plan_to_json(report.plan)},
          {"nodes", report.nodes},
          {"memory",
           {{"stages", stages},
            {"kept_gradients", report.memory.kept_gradients},
            {"staging", report.memory.staging},
            {"buckets", report.memory.buckets},
            {"decoded_ahead", report.memory.decoded_ahead},
            {"total", report.memory.total()}}},
          {"snapshots",
           {{"keep", report.keep},
            {"partner", report.snapshots.partner},
            {"level0", level_json(report.snapshots.level0)},
            {"level1", level_json(report.snapshots.level1)},
            {"level2", level_json(report.snapshots.level2)},
            {"level0_peak_node_bytes", level0_peak_bytes(report)}}},
          {"ram_disk",
           {{"path", report.ram_disk.path.string()},
            {"in_memory", report.ram_disk.in_memory},
            {"writable", report.ram_disk.writable},
            {"total_bytes", report.ram_disk.total_bytes},
            {"free_bytes", report.ram_disk.free_bytes}}}};
}

}  // namespace mso
