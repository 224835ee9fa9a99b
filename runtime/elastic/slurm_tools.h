// What the supervisor asks Slurm's own commands for. Every call has a deadline.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace mso {

// "n[1-3]" → n1 n2 n3 (scontrol show hostnames). Error where Slurm's commands cannot be run.
std::vector<std::string> expand_nodes(const std::string& node_list);

// Those of `nodes` on which no task can be started within `patience_s`: each is tried, all at the same time.
std::set<std::string> lost_nodes(const std::vector<std::string>& nodes, double patience_s);

// SIGKILL to all tasks of a step.
void kill_step(const std::string& job_id, const std::string& step_id);

}  // namespace mso
