#include "elastic/restart_policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace mso {

bool is_final_exit_code(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::kSuccess) ||
         exit_code == static_cast<int>(ExitCode::kBadUsage) ||
         exit_code == static_cast<int>(ExitCode::kBadData) ||
         exit_code == static_cast<int>(ExitCode::kNoValidState) ||
         exit_code == static_cast<int>(ExitCode::kStoppedBySignal);
}

std::string describe_exit_code(int exit_code) {
  if (exit_code > 128 && exit_code < 128 + 65) {
    const int signal = exit_code - 128;
    return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "exit code " + std::to_string(exit_code);
}

RestartDecision RestartPolicy::decide(const AttemptOutcome& outcome) {
  const auto end = [&](std::string reason) {
    return RestartDecision{.exit_code = outcome.exit_code, .reason = std::move(reason)};
  };
  if (outcome.stop_requested) return end("stopped as asked");
  switch (outcome.exit_code) {
    case static_cast<int>(ExitCode::kSuccess):
      return end("finished");
    case static_cast<int>(ExitCode::kBadUsage):
      return end("the configuration or command line was refused");
    case static_cast<int>(ExitCode::kBadData):
      return end("the data cannot be used");
    case static_cast<int>(ExitCode::kNoValidState):
      return end("there are snapshots, but none is valid on all ranks");
    case static_cast<int>(ExitCode::kStoppedBySignal):
      return end("stopped by a signal after a snapshot");
    default:
      break;
  }
  if (!outcome.started) return end("no rank came up");

  if (outcome.progressed) in_a_row_ = 0;
  if (in_a_row_ >= limits_.max_restarts) {
    return end(limits_.max_restarts == 0
                   ? "restarts are off"
                   : "no step was finished in " + std::to_string(in_a_row_ + 1) + " attempts in a row");
  }
  // The first two at once: a rank that dies while the job starts up says little about the next start.
  double delay = 0;
  if (in_a_row_ >= 2) {
    delay = std::min(limits_.longest_delay_s,
                     limits_.first_delay_s * std::ldexp(1.0, std::min(in_a_row_ - 2, 30)));
  }
  ++in_a_row_;
  return {.restart = true, .delay_s = delay, .reason = describe_exit_code(outcome.exit_code)};
}

}  // namespace mso
