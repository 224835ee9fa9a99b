// Context of slurmd itself: when it starts, the node's facts are read once, and what jobs left that ended
// without it is swept. Jobs that live are not touched.
#include "base/subprocess.h"
#include "spank/hooks.h"
#include "spank/job_state.h"
#include "spank/log_line.h"
#include "spank/tear_down.h"

namespace mso {

namespace {

// A driver that is not loaded yet takes seconds; slurmd must not wait for one that never comes.
constexpr double kFactsDeadlineS = 20;

// In a program of its own: hwloc and NVML stay out of slurmd and slurmstepd.
void keep_node_facts(const PluginArguments& arguments) {
  const auto run = RunDirectory::open(arguments.run_dir, true);
  const Outcome outcome =
      run_program({arguments.node_facts.string(), "--write", (run->path() / "node-facts").string()},
                  kFactsDeadlineS, 4096);
  if (outcome.exit_code == 0) return;
  const std::string why = outcome.not_started ? "cannot be started"
                          : outcome.timed_out ? "did not end in time"
                                              : outcome.errors;
  log_line(LogLine("node_facts").add("program", arguments.node_facts.string()).add("error", why), true);
}

}  // namespace

void slurmd_init(const HookCall& call) {
  const PluginArguments arguments = arguments_of(call);
  for (const std::string& mistake : arguments.mistakes)
    slurm_error("mso: plugstack.conf: %s", mistake.c_str());
  keep_node_facts(arguments);
  sweep_dead_jobs(arguments, controller_at(arguments.squeue), 0, "sweep_at_slurmd_start");
}

void slurmd_exit(const HookCall&) {}

}  // namespace mso
