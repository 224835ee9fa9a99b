// One attempt of a supervised job: the processes, what they report, and their end. Internal to elastic/.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "elastic/supervisor.h"

namespace mso {

using SteadyTime = std::chrono::steady_clock::time_point;

// Makes this process the one that inherits orphans of its descendants, and turns signals into a descriptor
// for its lifetime.
class SignalDescriptor {
 public:
  SignalDescriptor();
  ~SignalDescriptor();
  int fd() const { return fd_.get(); }
  // Takes one signal that has arrived; 0: none.
  int take();

 private:
  FileDescriptor fd_;
};

// Launchers of attempts, of which there may be two at a time: one runs, one stands by. All of them and all orphans are
// this process's children.
class Launchers {
 public:
  void add(pid_t launcher) { status_[launcher] = std::nullopt; }
  // Takes the ends of all children that have ended. False when no child is left.
  bool reap();
  // As wait(2) gives it; none while it lives.
  std::optional<int> status(pid_t launcher) const;
  void forget(pid_t launcher) { status_.erase(launcher); }
  // Kills all children but the launchers of other attempts than `own`; true when there are none such left.
  bool kill_all_of(pid_t own);

 private:
  std::map<pid_t, std::optional<int>> status_;
};

enum class AttemptKind { kFirst, kRestart, kStandby };

class Attempt {
 public:
  // Starts the launcher. A standby's ranks load what they need and wait for go(); what they report is kept until then.
  Attempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers, AttemptKind kind);
  // Ends whatever is left.
  ~Attempt();
  Attempt(const Attempt&) = delete;

  // The ranks of a standby begin.
  void go();
  // Whether the launcher lives: a standby that is gone is of no use.
  bool launcher_alive();

  // Waits for events (signals, ranks' reports) for at most `timeout_s`; true once the attempt is over. When
  // it returns true all its processes are gone.
  bool wait(double timeout_s);

  // After the end:
  int exit_code() const { return exit_code_; }
  const std::string& what() const { return what_; }
  SteadyTime noticed() const { return noticed_; }  // when the end was noticed, before anything was cleaned up
  // At any time:
  bool started() const { return !ranks_.empty(); }
  bool all_started() const { return ranks_.size() == static_cast<size_t>(options_.ranks); }
  bool stop_requested() const { return stop_requested_; }

 private:
  struct Rank {
    pid_t shim = 0, pid = 0;
    FileDescriptor shim_fd;     // pidfd: readable when mso-rank is gone
    std::optional<int> status;  // as wait(2) gives it; set when it has ended
  };
  void spawn(AttemptKind kind);
  std::vector<std::string> command_line() const;
  void read_reports();
  void note_report(const std::string& line);
  void handle_signal(int signal);
  bool judge();
  void end(int exit_code, std::string what);
  void kill_everything();

  const SupervisorOptions& options_;
  SignalDescriptor& signals_;
  Launchers& launchers_;
  std::filesystem::path folder_,
      memory_folder_;  // of this attempt: FIFO and launcher's files; shared segments
  FileDescriptor reports_, go_;
  std::string partial_line_;
  pid_t launcher_ = 0;
  std::map<int, Rank> ranks_;
  std::optional<int> final_code_;  // a rank has left saying that this is the end
  std::string final_what_;
  std::optional<SteadyTime> leave_deadline_;
  bool stop_requested_ = false, over_ = false;
  int exit_code_ = 0;
  std::string what_;
  SteadyTime noticed_;
};

}  // namespace mso
