#include "elastic/slurm_launch.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/joined.h"

namespace mso {

std::optional<SlurmAllocation> slurm_allocation(const std::function<const char*(const char*)>& env) {
  const auto text = [&](const char* name) {
    const char* value = env(name);
    return std::string(value == nullptr ? "" : value);
  };
  SlurmAllocation allocation{text("SLURM_JOB_ID"), text("SLURM_JOB_NODELIST"), 0};
  if (allocation.job_id.empty() || allocation.node_list.empty()) return std::nullopt;
  // A batch script has no SLURM_STEP_ID; salloc with an interactive step has one, and no task of a PMI.
  if (env("PMIX_RANK") != nullptr || env("PMI_RANK") != nullptr || env("OMPI_COMM_WORLD_RANK") != nullptr)
    return std::nullopt;
  const std::string tasks = text("SLURM_NTASKS");
  std::from_chars(tasks.data(), tasks.data() + tasks.size(), allocation.tasks);
  return allocation;
}

SlurmPlacement first_placement(const std::vector<std::string>& allocated, int ranks, int tasks_of_allocation,
                               int spare_nodes) {
  const int nodes = static_cast<int>(allocated.size()) - spare_nodes;
  if (nodes < 1)
    throw Error("no node is left to train on",
                std::to_string(allocated.size()) + " in the allocation, " + std::to_string(spare_nodes) + " to be spare",
                "ask for more nodes, or lower --spare-nodes", ExitCode::kBadUsage);
  SlurmPlacement placement{{allocated.begin(), allocated.begin() + nodes}, ranks};
  if (placement.ranks == 0) {
    // Tasks of the allocation are spread over all its nodes, spare ones too.
    const int per_node = std::max<int>(1, tasks_of_allocation / static_cast<int>(allocated.size()));
    placement.ranks = per_node * nodes;
  }
  if (placement.ranks % nodes != 0)
    throw Error("the ranks cannot be spread evenly",
                std::to_string(placement.ranks) + " ranks on " + std::to_string(nodes) + " nodes",
                "give -n a multiple of the nodes", ExitCode::kBadUsage);
  return placement;
}

SlurmPlacement next_placement(const std::vector<std::string>& allocated, const SlurmPlacement& before,
                              const std::set<std::string>& lost) {
  SlurmPlacement after;
  for (const std::string& node : before.nodes)
    if (!lost.contains(node)) after.nodes.push_back(node);
  for (const std::string& node : allocated) {
    if (after.nodes.size() == before.nodes.size()) break;
    const bool used = std::find(before.nodes.begin(), before.nodes.end(), node) != before.nodes.end();
    if (!used && !lost.contains(node)) after.nodes.push_back(node);
  }
  after.ranks = before.ranks / static_cast<int>(before.nodes.size()) * static_cast<int>(after.nodes.size());
  return after;
}

std::string describe_change(const SlurmPlacement& before, const SlurmPlacement& after, const std::set<std::string>& lost) {
  if (before.nodes == after.nodes) return "";
  std::vector<std::string> gone;
  for (const std::string& node : before.nodes)
    if (lost.contains(node)) gone.push_back(node);
  std::string text = joined(gone, " ") + (gone.size() == 1 ? " is lost: " : " are lost: ");
  text += after.nodes.empty() ? "no node is left" : "going on with " + std::to_string(after.ranks) + " ranks on " + joined(after.nodes, " ");
  return text;
}

std::vector<std::string> srun_command(const SlurmPlacement& placement, const std::vector<std::string>& more,
                                      const std::string& rank_program, const std::vector<std::string>& program) {
  const size_t nodes = placement.nodes.size();
  // --overlap: what Slurm still counts to a step that just ended (or to a lost node) does not hold this one up.
  std::vector<std::string> command = {"srun",
                                      "--mpi=pmix",
                                      "--overlap",
                                      "--kill-on-bad-exit=1",
                                      "--job-name=mso-train",
                                      "--nodes=" + std::to_string(nodes),
                                      "--ntasks=" + std::to_string(placement.ranks),
                                      "--ntasks-per-node=" + std::to_string(placement.ranks / static_cast<int>(nodes)),
                                      "--nodelist=" + joined(placement.nodes, ",")};
  command.insert(command.end(), more.begin(), more.end());
  command.push_back(rank_program);
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace mso
