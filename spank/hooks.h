// The hooks by context, one file each. They may throw; plugin.cc catches. `failed_*` is what plugin.cc calls
// then: by context, an exception ends the command, fails the step, or is only logged.
#pragma once

#include <string>

#include "base/error.h"
#include "spank/slurm.h"

namespace mso {

// submission.cc: what srun, sbatch and salloc have in common.
// Checks all that was asked, and leaves it in the environment for the nodes. Ends the process with code 2 on
// mistakes.
void submit_request(const HookCall& call, bool inherits, const char* memory_variable);
// An exception: for a job without --mso nothing, else the process ends with code 1.
void failed_before_submission(const HookCall& call, const Error& error);

void srun_init(const HookCall& call);  // local.cc
void srun_init_post_opt(const HookCall& call);
void srun_local_user_init(const HookCall& call);
void srun_exit(const HookCall& call);

void allocator_init_post_opt(const HookCall& call);  // allocator.cc

void step_init(const HookCall& call);  // remote.cc
void step_init_post_opt(const HookCall& call);
void step_user_init(const HookCall& call);
void step_task_init_privileged(const HookCall& call);
void step_task_init(const HookCall& call);
void step_task_post_fork(const HookCall& call);
void step_task_exit(const HookCall& call);
void step_exit(const HookCall& call);
// Before the task's program runs: the step will fail with the message. Later: a line in the log.
void failed_in_step(const HookCall& call, const Error& error);

void job_prolog(const HookCall& call);  // job_script.cc
void job_epilog(const HookCall& call);

void slurmd_init(const HookCall& call);  // slurmd.cc
void slurmd_exit(const HookCall& call);

}  // namespace mso
