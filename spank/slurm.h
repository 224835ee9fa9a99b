// Slurm's plugin interface, as C, and small helpers around it. The only header that includes spank.h.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spank/plugin_arguments.h"

namespace mso {

// One call of a hook.
struct HookCall {
  spank_t spank = nullptr;
  int argc = 0;
  char** argv = nullptr;
  const char* hook = "";  // "init_post_opt"
};

PluginArguments arguments_of(const HookCall& call);

// A variable of the step's environment, in slurmstepd; none: not set. Cut at one letter more than `limit`.
std::optional<std::string> step_variable(spank_t spank, const char* name, size_t limit = 2048);
void set_step_variable(spank_t spank, const std::string& name, const std::string& value);

// An item of the job; none where Slurm does not have it in this context.
template <typename T>
std::optional<T> spank_item_of(spank_t spank, spank_item_t item) {
  T value{};
  if (spank_get_item(spank, item, &value) != ESPANK_SUCCESS) return std::nullopt;
  return value;
}

}  // namespace mso
