// The symbols Slurm looks for. Each hook finds its context, calls that context's function and catches
// whatever it throws: nothing leaves the plugin as an exception, and no hook returns anything but 0, so that
// no node is drained and no job without --mso is touched by a mistake here.
#include <exception>
#include <new>

#include "spank/hooks.h"
#include "spank/log_line.h"
#include "spank/options.h"

extern "C" {
// const at namespace scope would be local to this file.
extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(mso, 1)
}

namespace mso {
namespace {

using Body = void (*)(const HookCall&);

// What to call in each context; null: nothing.
struct Bodies {
  Body local = nullptr, allocator = nullptr, remote = nullptr, slurmd = nullptr, job_script = nullptr;
};

void to_slurm_log(bool error, const std::string& line) {
  if (error)
    slurm_error("%s", line.c_str());
  else
    slurm_info("%s", line.c_str());
}

void handle_failure(const HookCall& call, spank_context_t context, const Error& error) noexcept {
  try {
    switch (context) {
      case S_CTX_LOCAL:
      case S_CTX_ALLOCATOR:
        return failed_before_submission(call, error);
      case S_CTX_REMOTE:
        return failed_in_step(call, error);
      default:
        log_line(LogLine("failure").add("hook", call.hook).add("error", error.what()), true);
    }
  } catch (...) {
    slurm_error("mso: %s failed, and so did saying why", call.hook);
  }
}

int run_hook(spank_t spank, int argc, char** argv, const char* name, const Bodies& bodies) noexcept {
  const HookCall call{spank, argc, argv, name};
  const spank_context_t context = spank_context();
  try {
    set_log_function(to_slurm_log);
    Body body = nullptr;
    switch (context) {
      case S_CTX_LOCAL:
        body = bodies.local;
        break;
      case S_CTX_ALLOCATOR:
        body = bodies.allocator;
        break;
      case S_CTX_REMOTE:
        body = bodies.remote;
        break;
      case S_CTX_SLURMD:
        body = bodies.slurmd;
        break;
      case S_CTX_JOB_SCRIPT:
        body = bodies.job_script;
        break;
      default:
        break;
    }
    if (body) body(call);
  } catch (const Error& error) {
    handle_failure(call, context, error);
  } catch (const std::exception& error) {
    try {
      handle_failure(call, context, Error(error.what(), name));
    } catch (...) {
      slurm_error("mso: out of memory in %s", name);
    }
  } catch (...) {
    try {
      handle_failure(call, context, Error("unknown exception", name));
    } catch (...) {
      slurm_error("mso: out of memory in %s", name);
    }
  }
  return 0;
}

void allocator_init(const HookCall& call) {
  register_options(call.spank);
}

}  // namespace
}  // namespace mso

extern "C" {

int slurm_spank_init(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "init",
                       {.local = mso::srun_init,
                        .allocator = mso::allocator_init,
                        .remote = mso::step_init,
                        .slurmd = mso::slurmd_init});
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "init_post_opt",
                       {.local = mso::srun_init_post_opt,
                        .allocator = mso::allocator_init_post_opt,
                        .remote = mso::step_init_post_opt});
}

int slurm_spank_local_user_init(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "local_user_init", {.local = mso::srun_local_user_init});
}

int slurm_spank_user_init(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "user_init", {.remote = mso::step_user_init});
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "task_init_privileged", {.remote = mso::step_task_init_privileged});
}

int slurm_spank_task_init(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "task_init", {.remote = mso::step_task_init});
}

int slurm_spank_task_post_fork(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "task_post_fork", {.remote = mso::step_task_post_fork});
}

int slurm_spank_task_exit(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "task_exit", {.remote = mso::step_task_exit});
}

int slurm_spank_exit(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "exit", {.local = mso::srun_exit, .remote = mso::step_exit});
}

int slurm_spank_job_prolog(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "job_prolog", {.job_script = mso::job_prolog});
}

int slurm_spank_job_epilog(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "job_epilog", {.job_script = mso::job_epilog});
}

int slurm_spank_slurmd_exit(spank_t spank, int argc, char* argv[]) {
  return mso::run_hook(spank, argc, argv, "slurmd_exit", {.slurmd = mso::slurmd_exit});
}

}  // extern "C"
