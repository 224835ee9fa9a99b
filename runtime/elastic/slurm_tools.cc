#include "elastic/slurm_tools.h"

#include <sstream>

#include "base/error.h"
#include "base/subprocess.h"

namespace mso {

namespace {

constexpr double kPatience_s = 15;
// A job of many nodes with long names.
constexpr size_t kMaxNames = 4 << 20;

}  // namespace

std::vector<std::string> expand_nodes(const std::string& node_list) {
  const Outcome outcome = run_program({"scontrol", "show", "hostnames", node_list}, kPatience_s, kMaxNames);
  if (outcome.exit_code != 0)
    throw Error("Slurm does not say which nodes the job has", "scontrol show hostnames " + node_list + ": " +
                    (outcome.not_started ? "cannot be started"
                     : outcome.timed_out ? "no answer"
                                         : "exit code " + std::to_string(outcome.exit_code)),
                "is scontrol in PATH? --local leaves Slurm out of it", ExitCode::kBadUsage);
  std::vector<std::string> nodes;
  std::istringstream lines(outcome.output);
  for (std::string node; lines >> node;) nodes.push_back(node);
  return nodes;
}

std::set<std::string> lost_nodes(const std::vector<std::string>& nodes, double patience_s) {
  std::vector<std::vector<std::string>> tries;
  for (const std::string& node : nodes)
    tries.push_back({"srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--nodelist=" + node, "--quiet", "true"});
  const std::vector<Outcome> outcomes = run_programs(tries, patience_s, 0);
  std::set<std::string> lost;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (outcomes[i].exit_code != 0) lost.insert(nodes[i]);
  return lost;
}

void kill_step(const std::string& job_id, const std::string& step_id) {
  run_program({"scancel", "--signal=KILL", job_id + "." + step_id}, kPatience_s, 0);
}

}  // namespace mso
