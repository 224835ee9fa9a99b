#include "exec/node_preparations.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "exec/rank_zero.h"
#include "memory/slice_scope.h"
#include "node/drift.h"
#include "node/node_facts.h"
#include "node/nvme_lanes.h"
#include "node/nvme_sysfs.h"
#include "node/platform_needs.h"
#include "node/thread_place.h"

namespace mso {

namespace {

constexpr size_t kMostNodesNamed = 8;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void adopt_slices(const World& world) {
  std::unique_ptr<SliceTable> table = SliceTable::from_environment();
  if (!table) return;
  if (world.local_rank() == 0) log_info("memory slices on {}: {}", world.node(), table->describe());
  set_slice_table(table.release());  // tensors of the whole process are charged to it, until its end
}

void compare_drives_of_nodes(World& world, const std::string& mode, double timeout_s) {
  // All ranks take part or none: whether the plugin was asked is the same on all.
  if (mode.empty() || mode == "off") return;
  std::string mine;
  if (world.local_rank() == 0) mine = format_node_drives({world.node(), current_boot_id(), read_nvme()});
  std::vector<NodeDrives> nodes;
  for (const std::string& text : all_gather_text(world.communicator(), mine, timeout_s))
    if (std::optional<NodeDrives> drives = parse_node_drives(text)) nodes.push_back(std::move(*drives));
  const DriveReport report = compare_drives(nodes);
  if (world.rank() == 0)
    for (const std::string& path : report.multipath) log_info("NVMe multipath: {}", path);
  if (report.duplicates.empty()) return;
  std::string all;
  for (const std::string& duplicate : report.duplicates) all += (all.empty() ? "" : "; ") + duplicate;
  if (mode == "prod")
    throw Error("NVMe drives of the job's nodes have the same identifier", all,
                "give each an identifier of its own, or --mso-check=staging", ExitCode::kBadUsage);
  if (world.rank() == 0) log_warn("NVMe drives of the job's nodes have the same identifier: {}", all);
}

// Ranks of one run with different drivers, libraries or programs end in hangs and wrong sums that nobody can explain.
void compare_versions_of_nodes(World& world, const std::string& mode, double timeout_s) {
  if (mode == "off" || world.size() == 1) return;
  std::vector<NodeVersions> nodes;
  for (const std::string& text :
       all_gather_text(world.communicator(), format_node_versions(read_node_versions(world.node())), timeout_s))
    nodes.push_back(parse_node_versions(text));
  std::string all;
  for (const std::string& sentence : find_drift(nodes)) all += (all.empty() ? "" : "; ") + sentence;
  if (all.empty()) return;
  if (mode == "prod")
    throw AgreedError("the nodes of this run are not alike", all,
                      "install the same versions on all, leave nodes out (--exclude), or --mso-check=staging", ExitCode::kBadUsage);
  if (world.rank() == 0) log_warn("the nodes of this run are not alike: {}", all);
}

void check_hardware_of_nodes(World& world, const std::string& mode, const std::string& needs_text, double timeout_s) {
  if (mode.empty() || mode == "off") return;
  PlatformNeeds needs;
  together(world.communicator(), timeout_s, [&] { needs = platform_needs(needs_text); });
  std::string mine;
  if (world.local_rank() == 0) {
    mine = describe_shortfalls(check_platform(read_platform_facts(), needs, CheckState::kFail));
    if (!mine.empty()) mine = world.node() + ": " + mine;
  }
  std::string all;
  size_t nodes = 0;
  for (const std::string& text : all_gather_text(world.communicator(), mine, timeout_s)) {
    if (text.empty() || ++nodes > kMostNodesNamed) continue;
    all += (all.empty() ? "" : "; ") + text;
  }
  if (nodes > kMostNodesNamed) all += "; and " + std::to_string(nodes - kMostNodesNamed) + " nodes more";
  if (all.empty()) return;
  const std::string hint = "mso check --node on a node says more; ero.needs or /etc/mso/needs.conf accept less";
  if (mode == "prod")
    throw AgreedError("nodes fall short of what training at full speed needs", all, hint + ", --mso-check=staging warns only",
                      ExitCode::kBadUsage);
  if (world.rank() == 0) log_warn("nodes fall short of what training at full speed needs ({}): {}", hint, all);
}

// srun --mso on a node without the plugin: Slurm only warns, and the step runs unprepared. The plugin's mark
// of this step on this node is missing then.
std::string missing_preparation() {
  const std::string step = variable("SLURM_STEP_ID"), node = variable("SLURMD_NODENAME");
  if (variable("SLURM_MSO_REQUEST").empty() || step.empty() || node.empty()) return "";
  return variable("MSO_PREPARED") == node + ":" + step ? "" : node;
}

void require_preparation(World& world, double timeout_s) {
  std::string first = all_gather_text(world.communicator(), variable("SLURM_MSO_REQUEST"), timeout_s)[0],
              nodes;
  if (first.empty()) return;
  for (const std::string& node : all_gather_text(world.communicator(), missing_preparation(), timeout_s))
    if (!node.empty() && nodes.find(node) == std::string::npos) nodes += (nodes.empty() ? "" : ", ") + node;
  if (!nodes.empty())
    throw Error(
        "--mso was asked for, but the Slurm plugin did not run on every node", nodes,
        "the node lacks spank_mso.so in plugstack.conf; leave it out (--exclude) and tell the administrator");
}

}  // namespace

void adopt_node_preparations(World& world, const Config& config) {
  const double timeout_s = config.parallel.timeout_s;
  require_preparation(world, timeout_s);
  // Rank 0's word for all: whether a rank takes part in what follows must not depend on its own environment.
  const std::string mode = all_gather_text(world.communicator(), variable("MSO_CHECK"), timeout_s)[0];
  if (const std::string problem = place_this_thread(ThreadClass::kCompute); !problem.empty())
    log_warn("this rank does not compute where the job's CPU sets put it: {}", problem);
  adopt_slices(world);
  compare_drives_of_nodes(world, mode, timeout_s);
  compare_versions_of_nodes(world, mode.empty() ? config.ero.check : mode, timeout_s);
  check_hardware_of_nodes(world, mode, config.ero.needs, timeout_s);
}

}  // namespace mso
