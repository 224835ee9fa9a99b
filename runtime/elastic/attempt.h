// One attempt of a supervised job: the ranks, what they report, and their end. How ranks are started and ended differs:
// local_attempt.h, slurm_attempt.h. Internal to elastic/.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "elastic/supervisor.h"

namespace mso {

using SteadyTime = std::chrono::steady_clock::time_point;
SteadyTime after(double seconds);

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

class Attempt {
 public:
  virtual ~Attempt() = default;
  Attempt(const Attempt&) = delete;

  // The ranks of a standby begin.
  virtual void go() {}
  // Whether the launcher lives: a standby that is gone is of no use.
  bool launcher_alive();

  // Waits for events (signals, ranks' reports) for at most `timeout_s`; true once the attempt is over. When
  // it returns true all its processes are gone, or cannot be reached.
  bool wait(double timeout_s);

  // After the end:
  int exit_code() const { return exit_code_; }
  const std::string& what() const { return what_; }
  SteadyTime noticed() const { return noticed_; }  // when the end was noticed, before anything was cleaned up
  // A rank said how it ended: so its node can be reached.
  bool a_rank_told() const { return a_rank_told_; }
  // At any time:
  bool started() const { return !ranks_.empty(); }
  bool stop_requested() const { return stop_requested_; }

 protected:
  struct Rank {
    pid_t shim = 0, pid = 0;
    FileDescriptor shim_fd;     // pidfd: readable when mso-rank is gone; on this machine only
    std::optional<int> status;  // as wait(2) gives it; set when it has ended
  };
  Attempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers)
      : options_(options), signals_(signals), launchers_(launchers) {}

  // Starts `command` in a process group of its own with a clean signal mask and no input. `prepare`: in the new process.
  void start_launcher(const std::vector<std::string>& command, const std::function<void()>& prepare, int death_signal);
  // A line of mso-rank.
  void note_report(const std::string& line);

  // A rank's "start" has come; `step`: its SLURM_STEP_ID, or nothing.
  virtual void rank_started(Rank&, const std::string& step) { (void)step; }
  // Takes what ranks have reported by now (note_report).
  virtual void read_reports() = 0;
  // How long to wait for events at most before read_reports() looks again; further descriptors to wait for.
  virtual double look_interval_s() const { return 3600; }
  virtual void add_watched(std::vector<pollfd>&) const {}
  // Ranks that are seen to be gone without a report.
  virtual void look_for_lost_ranks() {}
  // SIGUSR1 to every rank.
  virtual void ask_to_leave() = 0;
  // Ends whatever is left, and takes away the attempt's files.
  virtual void end_processes() = 0;
  virtual const char* launcher_name() const = 0;

  const SupervisorOptions& options_;
  SignalDescriptor& signals_;
  Launchers& launchers_;
  pid_t launcher_ = 0;
  std::map<int, Rank> ranks_;
  bool over_ = false;

 private:
  void handle_signal(int signal);
  bool judge();
  void end(int exit_code, std::string what);

  std::optional<int> final_code_;  // a rank has left saying that this is the end
  std::string final_what_;
  std::optional<SteadyTime> leave_deadline_;
  bool stop_requested_ = false, a_rank_told_ = false;
  int exit_code_ = 0;
  std::string what_;
  SteadyTime noticed_;
};

}  // namespace mso
