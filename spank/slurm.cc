#include "spank/slurm.h"

#include "base/error.h"

namespace mso {

PluginArguments arguments_of(const HookCall& call) {
  return parse_plugin_arguments(
      std::vector<std::string>(call.argv, call.argv + call.argc),
      {MSO_BINDIR "/mso", MSO_SLURM_BINDIR "/squeue", MSO_PKGLIBEXECDIR "/mso-node-facts"});
}

std::optional<std::string> step_variable(spank_t spank, const char* name, size_t limit) {
  // One letter more than the limit, so that what is cut off is seen to be too long.
  std::string value(limit + 2, '\0');
  const spank_err_t error = spank_getenv(spank, name, value.data(), static_cast<int>(value.size()));
  if (error != ESPANK_SUCCESS && error != ESPANK_NOSPACE) return std::nullopt;
  value.resize(value.find('\0'));
  return value;
}

void set_step_variable(spank_t spank, const std::string& name, const std::string& value) {
  if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS)
    throw Error("cannot set a variable of the step", name);
}

}  // namespace mso
