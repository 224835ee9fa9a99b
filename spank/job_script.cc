// Context of prolog and epilog (a short-lived slurmstepd as root): sweeps before, tears down after. Neither
// ever fails, so that no node is drained.
#include <cstdlib>

#include "spank/fault.h"
#include "spank/hooks.h"
#include "spank/tear_down.h"

namespace mso {

namespace {

// Set by the user's side of this job; its presence is all that counts here.
bool asked_for() {
  return std::getenv("SPANK_MSO_REQUEST") != nullptr;
}

void inject(const HookCall& call, const PluginArguments& arguments) {
  if (const char* fault = arguments.allow_faults ? std::getenv("SPANK_MSO_FAIL") : nullptr)
    raise_fault(parse_fault(fault), call.hook);
}

uint32_t job_of(const HookCall& call) {
  const auto job = spank_item_of<uint32_t>(call.spank, S_JOB_ID);
  if (!job) throw Error("Slurm does not tell the job", call.hook);
  return *job;
}

}  // namespace

void job_prolog(const HookCall& call) {
  if (!asked_for()) return;
  const PluginArguments arguments = arguments_of(call);
  inject(call, arguments);
  sweep_dead_jobs(arguments, controller_at(arguments.squeue), job_of(call), "sweep_in_prolog");
}

void job_epilog(const HookCall& call) {
  // By what is on the node, not by what was asked: an option of a step alone is not known here.
  const PluginArguments arguments = arguments_of(call);
  tear_down_job(job_of(call), arguments, "job_ended");
  if (asked_for()) inject(call, arguments);
}

}  // namespace mso
