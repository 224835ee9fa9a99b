// What `mso run` starts in a Slurm allocation: on which nodes, how many ranks, with which srun. Pure; slurm_attempt.h acts.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace mso {

// What the environment of a batch script or an salloc shell says.
struct SlurmAllocation {
  std::string job_id;
  std::string node_list;  // in Slurm's short form: "n[1-3,7]"
  int tasks = 0;          // SLURM_NTASKS; 0: not said
};
// None outside an allocation, and inside a job step (there srun has started this process, once for every task).
std::optional<SlurmAllocation> slurm_allocation(const std::function<const char*(const char*)>& env);

// Nodes of the allocation that are used, the others being spare.
struct SlurmPlacement {
  std::vector<std::string> nodes;
  int ranks = 0;
};

// The first placement: `ranks` (0: what the allocation says, else one a node) over all nodes but the last
// `spare_nodes`. Error (kBadUsage) where no node is left, or ranks cannot be spread evenly.
SlurmPlacement first_placement(const std::vector<std::string>& allocated, int ranks, int tasks_of_allocation,
                               int spare_nodes);

// After nodes were lost: those that were used and live stay, spare ones come in for the lost. Where there are not enough, as
// many as there are, with as many ranks a node as before. No nodes: nothing to go on with.
SlurmPlacement next_placement(const std::vector<std::string>& allocated, const SlurmPlacement& before,
                              const std::set<std::string>& lost);

// "n1 n2 → n1 n3 (n2 is lost)": empty where nothing changed.
std::string describe_change(const SlurmPlacement& before, const SlurmPlacement& after, const std::set<std::string>& lost);

// The command that starts the ranks of `program` under mso-rank. `more`: words for srun that the user gave.
std::vector<std::string> srun_command(const SlurmPlacement& placement, const std::vector<std::string>& more,
                                      const std::string& rank_program, const std::vector<std::string>& program);

}  // namespace mso
