// mso plan: what a run would need, before it starts. Needs no torch and builds no model.
#include <config.h>

#include <filesystem>
#include <iostream>
#include <memory>

#include "cmd/checked_model.h"
#include "cmd/command.h"
#include "plan/plan_report.h"
#ifdef MSO_HAVE_IO
#include "io/dataset.h"
#include "io/healing.h"
#include "io/storage_options.h"
#endif

namespace mso {

namespace {

struct PlanOptions : ConfigOptions {
  int ranks = 1, nodes = 1;
  bool json = false;
};

// Data that is not there yet is only told: plans are made before data is.
void check_data(const Config& config, std::vector<std::string>& notes) {
#ifdef MSO_HAVE_IO
  const StorageOptions storage = storage_options(config);
  auto missing = [&](const std::vector<std::string>& paths) {
    std::error_code ignored;
    for (const std::string& path : paths)
      if (!std::filesystem::exists(local_path(path, storage.nvme), ignored)) return path;
    return std::string();
  };
  for (const auto* paths : {&config.data.path, &config.data.eval_path}) {
    if (const std::string path = missing(*paths); !path.empty()) {
      notes.push_back("no data there yet, so it is not checked: " + path);
      continue;
    }
    if (paths->empty()) continue;
    const uint32_t shards = Dataset::check_files(*paths, storage.nvme);
    if (paths == &config.data.path && config.data.eval_path.empty() && config.data.eval_shards > 0)
      Dataset::check_split(shards, static_cast<uint32_t>(config.data.eval_shards));
  }
#else
  (void)config, (void)notes;
#endif
}

// By what broken samples will be replaced.
std::vector<std::string> healing_lines(const Config& config) {
  std::vector<std::string> lines;
#ifdef MSO_HAVE_IO
  const HealingPolicy policy = healing_policy(config.mdp);
  auto text = [](double value) { return nlohmann::json(value).dump(); };
  std::string thresholds = "least similarity of a replacement: " + text(policy.threshold);
  for (const auto& [category, threshold] : policy.thresholds) thresholds += ", " + category + " " + text(threshold);
  lines.push_back(policy.replace ? thresholds : "broken samples are skipped (mdp.healing.replace: false)");
  lines.push_back(policy.cap >= 1 ? "no cap" : "stops when more than " + text(policy.cap * 100) + " % of a category is lost, and more than " +
                                                   std::to_string(policy.cap_minimum) + " of its samples");
  std::error_code ignored;
  for (const std::string& path : config.data.path) {
    const std::filesystem::path given(path);
    const bool folder = std::filesystem::is_directory(given, ignored);
    if (!policy.replace || (!folder && !std::filesystem::exists(given, ignored))) continue;
    const std::filesystem::path file = (folder ? given : given.parent_path()) / kNeighbourFile;
    if (!std::filesystem::exists(file, ignored)) {
      lines.push_back("no " + file.string() + ": broken samples are skipped until `mso data index --embed " + path + "` has made it");
      continue;
    }
    try {
      const auto opened = NeighbourFile::open(file);
      lines.push_back(file.string() + ": " + std::to_string(opened->layout().rows) + " samples in " +
                      std::to_string(opened->about().categories.size()) + " categories, by " + opened->about().embedder);
    } catch (const Error& error) {
      lines.push_back(error.what());
    }
  }
#else
  (void)config;
#endif
  return lines;
}

int show_plan(const PlanOptions& options) {
  const LoadedConfig loaded = options.load();
  const Config& config = loaded.config;
  if (options.nodes > options.ranks)
    throw Error("more nodes than ranks", "--nodes " + std::to_string(options.nodes) + " --ranks " + std::to_string(options.ranks),
                "a node without a rank has no part in the run", ExitCode::kBadUsage);
  PlanReport report;
  std::vector<std::string> notes;
  report.model = summarise_llava(checked_model(config), config.model.freeze);
  check_data(config, notes);
  report.plan = make_data_parallel_plan(report.model, config, options.ranks);
  report.memory = estimate_memory(report.model, config, options.ranks);
  report.nodes = options.nodes;
  report.snapshots = estimate_snapshots(report.model, config, options.ranks, options.nodes);
  report.ram_disk = inspect_ram_disk(level0_folder(config.ecm.level0_path));
  report.keep = config.ecm.keep;
  if (options.json) {
    nlohmann::json out = plan_report_json(report);
    out["config"] = to_json(config);
    out["sources"] = loaded.sources;
    out["defaults_not_in_force"] = defaults_not_in_force();
    out["notes"] = notes;
    out["healing"] = healing_lines(config);
    std::cout << out.dump(2) << "\n";
    return 0;
  }
  std::cout << format_plan_report(report);
  for (const std::string& note : notes) std::cout << "\nNote: " << note << "\n";
  if (const std::vector<std::string> lines = healing_lines(config); !lines.empty()) {
    std::cout << "\nHealing\n";
    for (const std::string& line : lines) std::cout << "  " << line << "\n";
  }
  std::cout << "\nEffective values\n";
  std::cout << format_effective_values(loaded);
  std::cout << "\nDefaults not in force yet\n";
  for (const std::string& line : defaults_not_in_force()) std::cout << "  " << line << "\n";
  return 0;
}

}  // namespace

Command plan_command() {
  Command command;
  command.name = "plan";
  command.summary = "show stages, ranks, memory and snapshot sizes before training";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    auto options = std::make_shared<PlanOptions>();
    options->add_to(app);
    app.add_option("-n,--ranks", options->ranks, "ranks of the run (default 1)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("-N,--nodes", options->nodes, "nodes they run on (default 1)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_flag("--json", options->json, "the same as one JSON object");
    app.footer(
        "\nExamples:\n"
        "  mso plan -c demo.yaml --ranks 2\n"
        "  mso plan -c llava_stage2.yaml --ranks 64 --nodes 8 train.precision=bf16\n"
        "  mso plan -c demo.yaml --json | jq .snapshots\n");
    return [options] { return show_plan(*options); };
  };
  return command;
}

}  // namespace mso
