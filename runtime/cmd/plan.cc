// mso plan: what a run would need, before it starts. Needs no torch and builds no model.
#include <iostream>
#include <memory>

#include "base/model_config.h"
#include "cmd/command.h"
#include "plan/plan_report.h"

namespace mso {

namespace {

struct PlanOptions : ConfigOptions {
  int ranks = 1, nodes = 1;
  bool json = false;
};

int show_plan(const PlanOptions& options) {
  const LoadedConfig loaded = options.load();
  const Config& config = loaded.config;
  PlanReport report;
  report.model = summarise_llava(hugging_face_config(config.model), config.model.freeze);
  report.plan = make_data_parallel_plan(report.model, config, options.ranks);
  report.memory = estimate_memory(report.model, config, options.ranks);
  report.nodes = std::min(options.nodes, options.ranks);
  report.snapshots = estimate_snapshots(report.model, config, options.ranks, options.nodes);
  report.ram_disk = inspect_ram_disk(level0_folder(config.ecm.level0_path));
  report.keep = config.ecm.keep;
  if (options.json) {
    nlohmann::json out = plan_report_json(report);
    out["config"] = to_json(config);
    out["sources"] = loaded.sources;
    out["defaults_not_in_force"] = defaults_not_in_force();
    std::cout << out.dump(2) << "\n";
    return 0;
  }
  std::cout << format_plan_report(report) << "\nEffective values\n";
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
