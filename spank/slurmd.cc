// Context of slurmd itself: when it starts, what jobs left that ended without it is swept. Jobs that live are
// not touched.
#include "spank/hooks.h"
#include "spank/tear_down.h"

namespace mso {

void slurmd_init(const HookCall& call) {
  const PluginArguments arguments = arguments_of(call);
  for (const std::string& mistake : arguments.mistakes)
    slurm_error("mso: plugstack.conf: %s", mistake.c_str());
  const auto ask = [&arguments](uint32_t job) { return ask_controller(job, arguments.squeue); };
  sweep_dead_jobs(arguments, ask, 0, "sweep_at_slurmd_start");
}

void slurmd_exit(const HookCall&) {}

}  // namespace mso
