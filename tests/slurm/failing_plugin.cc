// A plugin that fails in the hook named by the variable OTHER_FAIL, to stand beside ours in plugstack.conf.
extern "C" {
#include <slurm/spank.h>
extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(other, 1)
}

#include <cstdlib>
#include <cstring>

namespace {
int result(spank_t spank, const char* hook) {
  char wanted[64] = "";
  if (spank_remote(spank) == 1)
    spank_getenv(spank, "OTHER_FAIL", wanted, sizeof wanted);
  else if (const char* value = std::getenv("OTHER_FAIL"))
    std::strncpy(wanted, value, sizeof wanted - 1);
  else if (const char* control = std::getenv("SPANK_OTHER_FAIL"))
    std::strncpy(wanted, control, sizeof wanted - 1);
  return std::strcmp(wanted, hook) == 0 ? -1 : 0;
}
}  // namespace

#define HOOK(name)                                                \
  extern "C" int slurm_spank_##name(spank_t spank, int, char**) { \
    return result(spank, #name);                                  \
  }
HOOK(init)
HOOK(user_init)
HOOK(task_init_privileged)
HOOK(task_init)
HOOK(task_post_fork)
HOOK(task_exit)
HOOK(exit)
HOOK(job_prolog)
HOOK(job_epilog)

extern "C" int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  const char* value = std::getenv("OTHER_FAIL");
  if (value && spank_remote(spank) != 1) spank_job_control_setenv(spank, "OTHER_FAIL", value, 1);
  return spank_remote(spank) == 1 ? result(spank, "init_post_opt") : 0;
}
