// The one exception type of the project, and the exit codes of `mso`.
#pragma once

#include <stdexcept>
#include <string>

namespace mso {

// Exit codes of every `mso` command (documented in mso(1)).
enum class ExitCode : int {
  kSuccess = 0,
  kFailure = 1,        // something broke while running; the message says what
  kBadUsage = 2,       // configuration or command line refused; nothing was started
  kBadData = 3,        // the data cannot be used (no shard, damaged index, too many bad samples)
  kNoValidState = 4,   // snapshots exist but none is valid on all ranks
  kPeerLost = 5,       // another rank did not answer within the deadline
  kStoppedBySignal = 75,  // snapshot taken on SIGUSR1/SIGTERM; start again to go on (EX_TEMPFAIL)
};

// What failed, on what (file, rank, key, line), and what to do about it. what() joins the
// three into one message: "WHAT: ON (hint: HINT)"; empty parts are left out.
class Error : public std::runtime_error {
 public:
  Error(std::string what_failed, std::string on, std::string hint = "", ExitCode code = ExitCode::kFailure);

  const std::string& what_failed() const { return what_failed_; }
  const std::string& on() const { return on_; }
  const std::string& hint() const { return hint_; }
  ExitCode exit_code() const { return code_; }

 private:
  std::string what_failed_, on_, hint_;
  ExitCode code_;
};

// An Error for a failed system call: appends the text of `error_number` (default: errno). Without a hint, the usual one
// for full, read-only and forbidden storage.
Error system_error(const std::string& what_failed, const std::string& on, int error_number = 0,
                   const std::string& hint = "");

}  // namespace mso
