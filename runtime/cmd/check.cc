// mso check: whether a node is prepared as the plugin's admin thinks it is, and whether a job's configuration fits it.
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/units.h"
#include "cmd/checked_model.h"
#include "cmd/command.h"
#include "node/cpu_sets.h"
#include "node/node_check.h"
#include "node/node_facts_read.h"
#include "node/platform_needs.h"
#include "plan/plan_report.h"

namespace mso {

namespace {

struct CheckOptions : ConfigOptions {
  bool node = false, json = false, prod = false;
  std::string slurm_conf, needs;
  int ranks = 1;
};

// "22.05.8" as the installed command says; empty where there is none.
std::string installed_slurm_version() {
  FILE* pipe = ::popen("sinfo --version 2>/dev/null", "r");
  if (!pipe) return "";
  std::array<char, 128> line = {};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  ::pclose(pipe);
  const std::string text = read ? line.data() : "";
  const size_t digit = text.find_first_of("0123456789");
  return digit == std::string::npos ? "" : text.substr(digit, text.find_last_of("0123456789") - digit + 1);
}

CheckLine room(const std::string& name, int64_t needed, uint64_t there, const std::string& what, const std::string& hint) {
  CheckLine line{name, CheckState::kOk, format_bytes(static_cast<double>(needed)) + " of " + format_bytes(static_cast<double>(there)) + " " + what, ""};
  if (static_cast<uint64_t>(needed) > there) line.state = CheckState::kFail, line.hint = hint;
  return line;
}

// What a run of `ranks` ranks on this node would need of it.
std::vector<CheckLine> check_configuration(const Config& config, const NodeFacts& facts, int ranks) {
  std::vector<CheckLine> lines;
  CpuSetInput cpus;
  cpus.cpus = facts.cpus;
  for (const CpuFact& cpu : facts.cpus) cpus.allocated.push_back(cpu.cpu);
  cpus.request = {static_cast<int>(config.ero.cpu_reserve_cores.at(0)), static_cast<int>(config.ero.cpu_reserve_cores.at(1))};
  cpus.tasks.resize(static_cast<size_t>(ranks));
  const CpuSetPlan plan = plan_cpu_sets(cpus);
  if (plan.note.empty())
    lines.push_back({"ero.cpu_reserve_cores", CheckState::kOk, format_cpu_request(plan.given) + " cores decode, the rest computes", ""});
  else
    lines.push_back({"ero.cpu_reserve_cores", CheckState::kWarn, plan.note, "lower ero.cpu_reserve_cores, or ask for more CPUs"});

  PlanReport report;
  report.model = summarise_llava(checked_model(config), config.model.freeze);
  report.memory = estimate_memory(report.model, config, ranks);
  report.snapshots = estimate_snapshots(report.model, config, ranks, 1);
  report.ram_disk = inspect_ram_disk(level0_folder(config.ecm.level0_path));
  report.keep = config.ecm.keep;
  report.nodes = 1;
  lines.push_back(room("memory", report.memory.total() * ranks, facts.memory_bytes, "of the node, for " + std::to_string(ranks) + " ranks",
                       "fewer ranks a node, or a smaller data.micro_batch_tokens"));
  if (report.snapshots.level0.on)
    lines.push_back(room("Level 0 snapshots", level0_peak_bytes(report), report.ram_disk.free_bytes, "free in " + report.ram_disk.path.string(),
                         "a larger snapshot directory (--mso-snapshot), or ecm.level0_path on a larger RAM disk"));
  return lines;
}

// --need over ero.needs over the site's.
PlatformNeeds stated_needs(const std::optional<Config>& config, const std::string& option) {
  PlatformNeeds needs = platform_needs(config ? config->ero.needs : "");
  std::vector<std::string> mistakes;
  if (!option.empty() && !parse_platform_needs(option, needs, mistakes))
    throw Error("--need cannot be read", mistakes.front(), "such as --need pcie-lanes:64,infiniband:off", ExitCode::kBadUsage);
  return needs;
}

int check(const CheckOptions& options) {
  if (!options.node && options.file.empty() && options.overrides.empty())
    throw Error("nothing to check", "neither --node nor -c FILE given", "mso check --node; mso check -c FILE", ExitCode::kBadUsage);
  std::optional<Config> config;
  if (!options.file.empty() || !options.overrides.empty()) config = options.load().config;
  std::optional<NodeFacts> kept = load_node_facts();
  const bool was_kept = kept.has_value();
  const NodeFacts facts = was_kept ? std::move(*kept) : read_node_facts();
  std::vector<CheckLine> lines;
  if (options.node) {
    NodeFacts now = facts;
    now.nvme = read_nvme();  // drives come and go while slurmd runs
    NodeCheckOptions node;
    node.slurm_conf = options.slurm_conf;
    node.slurm_version = installed_slurm_version();
    lines = check_node(node, now, was_kept);
    for (CheckLine& line : check_platform(read_platform_facts(), stated_needs(config, options.needs), options.prod ? CheckState::kFail : CheckState::kWarn))
      lines.push_back(std::move(line));
  }
  if (config)
    for (CheckLine& line : check_configuration(*config, facts, options.ranks)) lines.push_back(std::move(line));
  if (options.json)
    std::cout << check_json(lines).dump(2) << "\n";
  else
    std::cout << format_check(lines);
  return check_exit_code(lines);
}

}  // namespace

Command check_command() {
  Command command;
  command.name = "check";
  command.summary = "check this node, and whether a job's configuration fits it";
  command.setup = [](CLI::App& app) -> std::function<int()> {
    auto options = std::make_shared<CheckOptions>();
    options->add_to(app);
    app.add_flag("--node", options->node, "what of the Slurm plugin took on this node");
    app.add_option("--need", options->needs, "with --node: what its hardware must have (default: /etc/mso/needs.conf, else built in)")
        ->type_name("NAME:VALUE[,…]");
    app.add_flag("--prod", options->prod, "with --node: hardware that falls short fails instead of warning");
    app.add_option("-n,--ranks", options->ranks, "with -c: ranks on this node (default 1)")->check(CLI::Range(1, 4096));
    app.add_option("--slurm-conf", options->slurm_conf, "slurm.conf (default: $SLURM_CONF, then the usual places)")->type_name("FILE");
    app.add_flag("--json", options->json, "the same as one JSON object");
    app.footer(
        "\nExit codes: 0 nothing fails (warnings do not count), 1 something fails, 2 command line or configuration refused.\n"
        "\nExamples:\n"
        "  mso check --node                 as root or as a user, on a node of the cluster\n"
        "  mso check --node --prod --need pcie-lanes:64,infiniband:off\n"
        "  mso check --node --json | jq '.checks[] | select(.state != \"ok\")'\n"
        "  mso check -c demo.yaml -n 8      would eight ranks fit this node?\n");
    return [options] { return check(*options); };
  };
  return command;
}

}  // namespace mso
