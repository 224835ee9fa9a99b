// srun, sbatch and salloc, before anything is queued.
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "spank/fault.h"
#include "spank/hooks.h"
#include "spank/log_line.h"
#include "spank/options.h"
#include "spank/user_request.h"

namespace mso {

namespace {

std::vector<std::string> own_command_line() {
  std::vector<std::string> words;
  try {
    const std::string text = read_file("/proc/self/cmdline", 4 << 20);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\0', begin), text.size());
      words.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  } catch (const Error&) {
    // Then --mem is not known here; the nodes look again.
  }
  return words;
}

void control_variable(const HookCall& call, const char* name, const std::string& value) {
  // Reaches the prolog and epilog hooks as SPANK_name.
  if (spank_job_control_setenv(call.spank, name, value.c_str(), 1) != ESPANK_SUCCESS)
    throw Error("Slurm does not take a variable for the prolog", name);
}

void forget_outer_option(std::optional<std::string>& typed, const std::string& name) {
  const char* outer = std::getenv(("SLURM_SPANK__SLURM_SPANK_OPTION_mso_" + name).c_str());
  if (typed && outer && *typed == outer) typed.reset();
}

}  // namespace

void submit_request(const HookCall& call, bool inherits, const char* memory_variable) {
  TypedOptions typed = typed_options();
  ::unsetenv(kConfirmVariable);  // of an srun around this one
  const char* around = inherits ? std::getenv(kRequestVariable) : nullptr;
  if (inherits && !around && typed.asked) around = std::getenv(kKeptRequestVariable);
  if (!typed.asked && !around) {
    // A job made from inside another one does not ask for what that one asked.
    if (!inherits) ::unsetenv(kRequestVariable), ::unsetenv(kKeptRequestVariable);
    return;
  }
  const PluginArguments arguments = arguments_of(call);
  const char* fault = arguments.allow_faults ? std::getenv("MSO_SPANK_FAIL") : nullptr;
  if (fault)
    raise_fault(parse_fault(fault),
                std::string(spank_context() == S_CTX_LOCAL ? "local_" : "allocator_") + call.hook);

  if (around) {
    // Slurm hands sbatch's and salloc's options to the sruns inside as if they were typed again. Those that
    // name files were followed when the job was made, on a machine that has them.
    forget_outer_option(typed.profile, "mso");
    forget_outer_option(typed.config, "mso_config");
  }
  UserSide side;
  side.environment = environ;
  side.command_line = own_command_line();
  side.memory_variable = memory_variable;
  if (around) side.inherited = around;
  std::vector<RequestMistake> mistakes;
  const JobRequest request = make_user_request(typed, arguments, side, mistakes);
  if (!mistakes.empty()) {
    for (const std::string& line : describe_mistakes(mistakes))
      slurm_error("%s", printable(line, 600).c_str());
    // Not by the return value: Slurm overlooks that of a plugin that is `optional` in plugstack.conf.
    std::exit(static_cast<int>(ExitCode::kBadUsage));
  }
  const std::string text = format_request(request);
  if (::setenv(kRequestVariable, text.c_str(), 1) != 0)
    throw Error("cannot set a variable", kRequestVariable);
  ::unsetenv(kPreparedVariable);
  control_variable(call, "MSO_REQUEST", text);
  if (fault) control_variable(call, "MSO_FAIL", fault);
}

void failed_before_submission(const HookCall& call, const Error& error) {
  const bool inherited =
      spank_context() == S_CTX_LOCAL && std::getenv("SLURM_JOB_ID") && std::getenv(kRequestVariable);
  if (!typed_options().asked && !inherited) return;
  slurm_error("mso: %s", printable(error.what(), 600).c_str());
  const std::string hook = call.hook;
  if (hook != "exit") std::exit(static_cast<int>(ExitCode::kFailure));
}

}  // namespace mso
