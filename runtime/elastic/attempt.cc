#include "elastic/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/log.h"

namespace mso {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

SteadyTime after(double seconds) {
  return steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
}

SignalDescriptor::SignalDescriptor() {
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fd_ = FileDescriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_.valid()) throw system_error("cannot watch for signals", "signalfd");
}

SignalDescriptor::~SignalDescriptor() {
  while (take() != 0) {
  }  // what came in while things ended is answered
  const sigset_t set = handled_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

int SignalDescriptor::take() {
  signalfd_siginfo info;
  return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

bool Launchers::reap() {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
    if (auto launcher = status_.find(pid); launcher != status_.end()) launcher->second = status;
  return pid == 0;
}

std::optional<int> Launchers::status(pid_t launcher) const {
  const auto found = status_.find(launcher);
  return found == status_.end() ? std::nullopt : found->second;
}

bool Launchers::kill_all_of(pid_t own) {
  reap();
  bool left = false;
  std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t child; list >> child;) {
    if (child != own && status_.contains(child)) continue;
    kill(child, SIGKILL);
    left = true;
  }
  return !left;
}

bool Attempt::launcher_alive() {
  launchers_.reap();
  return !launchers_.status(launcher_);
}

void Attempt::start_launcher(const std::vector<std::string>& command, const std::function<void()>& prepare,
                             int death_signal) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t self = getpid();

  launcher_ = fork();
  if (launcher_ < 0) throw system_error("cannot start a process", command[0]);
  if (launcher_ > 0) return launchers_.add(launcher_);

  // The new process, up to exec. A group of its own: Ctrl-C reaches the supervisor alone, which asks for a
  // snapshot.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != self) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  setenv("MSO_SUPERVISED", "1", 1);
  prepare();
  execvp(arguments[0], arguments.data());
  const std::string message = "mso run: " + command[0] + ": " + strerror(errno) + "\n";
  if (write(STDERR_FILENO, message.data(), message.size()) < 0) {
  }
  _exit(127);
}

bool Attempt::wait(double timeout_s) {
  const SteadyTime until = after(timeout_s);
  while (!over_) {
    SteadyTime wake = std::min(until, after(look_interval_s()));
    if (leave_deadline_) wake = std::min(wake, *leave_deadline_);
    const auto left = wake - steady_clock::now();
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    add_watched(watched);
    const int timeout_ms = static_cast<int>(std::max<long>(0, duration_cast<milliseconds>(left).count() + 1));
    poll(watched.data(), watched.size(), timeout_ms);

    read_reports();
    while (int signal = signals_.take()) handle_signal(signal);
    launchers_.reap();
    look_for_lost_ranks();
    if (judge()) return true;
    if (steady_clock::now() >= until) return false;
  }
  return true;
}

void Attempt::note_report(const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  int number = 0;
  pid_t shim = 0;
  long value = 0;
  if (!(words >> kind >> number >> shim >> value)) return;
  Rank& rank = ranks_[number];
  if (kind == "start") {
    rank.shim = shim;
    rank.pid = static_cast<pid_t>(value);
    std::string step;
    words >> step;
    rank_started(rank, step);
  } else if (kind == "end") {
    rank.status = static_cast<int>(value);
    a_rank_told_ = true;
    const int code = shell_code(*rank.status);
    if (!final_code_ && code != 0 && is_final_exit_code(code)) {
      final_code_ = code;
      final_what_ = "rank " + std::to_string(number) + ": " + describe_exit_code(code);
    }
  }
}

void Attempt::handle_signal(int signal) {
  if (signal == SIGCHLD) return;
  const bool again = stop_requested_ && (signal == SIGINT || signal == SIGTERM);
  stop_requested_ = true;
  if (!started() || again) {
    log_warn("{}: ending the ranks at once", strsignal(signal));
    return end(128 + signal,
               std::string("stopped by signal ") + std::to_string(signal) + " (" + strsignal(signal) + ")");
  }
  log_info("{}: asking the ranks for a snapshot and to leave (again: ends them at once)", strsignal(signal));
  ask_to_leave();
  leave_deadline_ = after(options_.stop_timeout_s);
}

// What the reports add up to; true when the attempt is over.
bool Attempt::judge() {
  if (over_) return true;
  // When one rank leaves with a final code (or all were asked to leave), what the launcher does to the
  // others, or how an unprepared rank dies, no longer matters.
  if (!final_code_ && !stop_requested_) {
    for (const auto& [number, rank] : ranks_) {
      if (!rank.status || shell_code(*rank.status) == 0) continue;
      const int code = shell_code(*rank.status);
      end(code, "rank " + std::to_string(number) + " (pid " + std::to_string(rank.pid) +
                    "): " + describe_exit_code(code));
      return true;
    }
  }
  size_t ended = 0;
  int worst = 0;
  for (const auto& [number, rank] : ranks_) {
    ended += rank.status.has_value();
    if (rank.status && worst == 0) worst = shell_code(*rank.status);
  }
  if (const std::optional<int> launcher_status = launchers_.status(launcher_)) {
    const int code = final_code_ ? *final_code_ : worst != 0 ? worst : shell_code(*launcher_status);
    std::string what = final_code_ ? final_what_ : "all ranks: " + describe_exit_code(code);
    if (!started())
      what =
          std::string(launcher_name()) + ": " + describe_exit_code(code);
    else if (!final_code_ && worst == 0 && code != 0)
      what = std::string(launcher_name()) + ": " + describe_exit_code(code);
    end(code, what);
    return true;
  }
  if ((final_code_ || ended > 0) && !leave_deadline_) leave_deadline_ = after(options_.leave_timeout_s);
  if (leave_deadline_ && steady_clock::now() >= *leave_deadline_) {
    std::string left;
    for (const auto& [number, rank] : ranks_) {
      if (!rank.status) left += (left.empty() ? "" : ", ") + std::to_string(number);
    }
    // All are gone and only the launcher hangs: the ranks' word counts.
    if (left.empty())
      end(final_code_.value_or(worst), final_code_ ? final_what_ : "all ranks: " + describe_exit_code(worst));
    else
      end(stop_requested_ && final_code_ ? *final_code_ : 1, "rank " + left + " did not leave in time");
    return true;
  }
  return false;
}

void Attempt::end(int exit_code, std::string what) {
  if (over_) return;
  noticed_ = steady_clock::now();
  exit_code_ = exit_code;
  what_ = std::move(what);
  end_processes();
  over_ = true;
}

}  // namespace mso
