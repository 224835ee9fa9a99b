// Whether a job whose ranks have ended is started again, when, and with which exit code it ends otherwise.
// Pure.
#pragma once

#include <string>
#include <vector>

namespace mso {

struct RestartLimits {
  int max_restarts = 10;  // in a row without a finished step in between; progress sets the count back to zero
  double first_delay_s = 1.0;  // before the third start in a row without progress; doubles from there
  double longest_delay_s = 30.0;
};

// How one attempt ended.
struct AttemptOutcome {
  // As a shell sees it: the exit code, or 128 + signal. Of the rank that ended first in a way that ends the
  // job.
  int exit_code = 0;
  bool started = true;          // at least one rank came up
  bool progressed = false;      // a step was finished that no earlier attempt had finished
  bool stop_requested = false;  // somebody asked the supervisor to stop
};

struct RestartDecision {
  bool restart = false;
  double delay_s = 0;
  int exit_code = 0;   // of the supervisor, where it does not restart
  std::string reason;  // one clause for the log: why
};

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartLimits limits) : limits_(limits) {}
  // Called once per attempt, in order.
  RestartDecision decide(const AttemptOutcome& outcome);
  int restarts_without_progress() const { return in_a_row_; }

 private:
  RestartLimits limits_;
  int in_a_row_ = 0;
};

// True for the codes with which a program says that starting it again changes nothing: 0, 2 (bad usage), 4
// (no valid state) and 75 (stopped by a signal).
bool is_final_exit_code(int exit_code);

// "exit code 3", "killed by signal 9 (Killed)".
std::string describe_exit_code(int exit_code);

}  // namespace mso
