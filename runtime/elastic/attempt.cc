#include "elastic/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace mso {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kKillPatience{10};

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

SteadyTime after(double seconds) {
  return steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
}

int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Names carry the supervisor's process, so that what one that was killed left behind can be told.
constexpr const char* kFolderPrefix = "mso-run-";

std::filesystem::path make_folder(const std::filesystem::path& parent) {
  std::string name = (parent / (kFolderPrefix + std::to_string(getpid()) + "-XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) throw system_error("cannot make a folder", parent.string());
  return name;
}

void remove_leftovers(const std::filesystem::path& parent) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    const pid_t owner = std::atoi(name.c_str() + strlen(kFolderPrefix));
    struct stat info;
    if (owner <= 0 || lstat(entry.path().c_str(), &info) != 0 || info.st_uid != geteuid()) continue;
    if (kill(owner, 0) != 0 && errno == ESRCH) std::filesystem::remove_all(entry.path(), ignored);
  }
}

}  // namespace

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

Attempt::Attempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers, AttemptKind kind)
    : options_(options), signals_(signals), launchers_(launchers) {
  // A short path: sockets of the launcher lie under it.
  if (kind == AttemptKind::kFirst) {
    remove_leftovers("/tmp");
    remove_leftovers("/dev/shm");
  }
  folder_ = make_folder("/tmp");
  std::error_code ignored;
  if (std::filesystem::is_directory("/dev/shm", ignored) && access("/dev/shm", W_OK) == 0) {
    memory_folder_ = make_folder("/dev/shm");
  }
  const std::filesystem::path fifo = folder_ / "status";
  if (mkfifo(fifo.c_str(), 0600) != 0) throw system_error("cannot make a FIFO", fifo.string());
  // Also for writing, so that it never reads as ended.
  reports_ = open_file(fifo, O_RDWR | O_NONBLOCK);
  if (kind == AttemptKind::kStandby) {
    const std::filesystem::path go = folder_ / "go";
    if (mkfifo(go.c_str(), 0600) != 0) throw system_error("cannot make a FIFO", go.string());
  }
  spawn(kind);
  launchers_.add(launcher_);
}

Attempt::~Attempt() {
  if (!over_) kill_everything();
  launchers_.forget(launcher_);
}

void Attempt::go() {
  // Readers that wait in open(2) go on now; those that come later find a writer.
  go_ = open_file(folder_ / "go", O_RDWR | O_NONBLOCK);
}

bool Attempt::launcher_alive() {
  launchers_.reap();
  return !launchers_.status(launcher_);
}

std::vector<std::string> Attempt::command_line() const {
  std::vector<std::string> command;
  if (options_.ranks > 1 || !options_.mpirun_args.empty()) {
    command = {options_.mpirun, "-n", std::to_string(options_.ranks), "--bind-to", "none"};
    command.insert(command.end(), options_.mpirun_args.begin(), options_.mpirun_args.end());
  }
  command.push_back(options_.rank_program.string());
  command.insert(command.end(), options_.program.begin(), options_.program.end());
  return command;
}

void Attempt::spawn(AttemptKind kind) {
  const std::vector<std::string> command = command_line();
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::string fifo = (folder_ / "status").string();
  const pid_t self = getpid();

  launcher_ = fork();
  if (launcher_ < 0) throw system_error("cannot start a process", command[0]);
  if (launcher_ > 0) return;

  // The new process, up to exec. A group of its own: Ctrl-C reaches the supervisor alone, which asks for a
  // snapshot.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  setenv("MSO_RANK_STATUS", fifo.c_str(), 1);
  setenv("MSO_SUPERVISED", "1", 1);
  if (kind != AttemptKind::kFirst) unsetenv("MSO_KILL_AT");  // a fault is injected once
  unsetenv("MSO_STANDBY");
  if (kind == AttemptKind::kStandby) setenv("MSO_STANDBY", (folder_ / "go").c_str(), 1);
  // Open MPI 4 and 5: its files where they can be removed after a kill; more ranks than cores; root in
  // containers.
  setenv("OMPI_MCA_orte_tmpdir_base", folder_.c_str(), 1);
  setenv("PRTE_MCA_prte_tmpdir_base", folder_.c_str(), 1);
  if (!memory_folder_.empty()) {
    setenv("OMPI_MCA_btl_vader_backing_directory", memory_folder_.c_str(), 1);
    setenv("OMPI_MCA_btl_sm_backing_directory", memory_folder_.c_str(), 1);
  }
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
  if (geteuid() == 0) {
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
      setenv(name, "1", 1);
    }
  }
  execvp(arguments[0], arguments.data());
  const std::string message = "mso run: " + command[0] + ": " + strerror(errno) + "\n";
  if (write(STDERR_FILENO, message.data(), message.size()) < 0) {
  }
  _exit(127);
}

bool Attempt::wait(double timeout_s) {
  const SteadyTime until = after(timeout_s);
  while (!over_) {
    SteadyTime wake = until;
    if (leave_deadline_) wake = std::min(wake, *leave_deadline_);
    const auto left = wake - steady_clock::now();
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}, {reports_.get(), POLLIN, 0}};
    for (const auto& [number, rank] : ranks_) {
      if (!rank.status && rank.shim_fd.valid()) watched.push_back({rank.shim_fd.get(), POLLIN, 0});
    }
    const int timeout_ms = static_cast<int>(std::max<long>(0, duration_cast<milliseconds>(left).count() + 1));
    poll(watched.data(), watched.size(), timeout_ms);

    read_reports();
    while (int signal = signals_.take()) handle_signal(signal);
    launchers_.reap();
    for (auto& [number, rank] : ranks_) {
      if (rank.status || !rank.shim_fd.valid()) continue;
      pollfd gone{rank.shim_fd.get(), POLLIN, 0};
      if (poll(&gone, 1, 0) != 1) continue;
      read_reports();                           // its last words may have come in between
      if (!rank.status) rank.status = SIGKILL;  // killed itself, and the rank with it
    }
    if (judge()) return true;
    if (steady_clock::now() >= until) return false;
  }
  return true;
}

void Attempt::read_reports() {
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(reports_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    partial_line_.append(buffer, n);
    for (size_t end; (end = partial_line_.find('\n')) != std::string::npos;) {
      note_report(partial_line_.substr(0, end));
      partial_line_.erase(0, end + 1);
    }
  }
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
    rank.shim_fd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, shim, 0)));
    // Gone already: its "end" is in the FIFO, or it never comes.
    if (!rank.shim_fd.valid()) read_reports();
    if (!rank.shim_fd.valid() && !rank.status && errno == ESRCH) rank.status = SIGKILL;
  } else if (kind == "end") {
    rank.status = static_cast<int>(value);
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
  for (const auto& [number, rank] : ranks_) {
    if (!rank.status) kill(rank.pid, SIGUSR1);
  }
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
          (launcher_ && options_.ranks > 1 ? options_.mpirun : "the rank") + ": " + describe_exit_code(code);
    else if (!final_code_ && worst == 0 && code != 0)
      what = options_.mpirun + ": " + describe_exit_code(code);
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
  kill_everything();
  over_ = true;
}

void Attempt::kill_everything() {
  std::error_code ignored;
  std::filesystem::remove(folder_ / "status", ignored);  // a rank that comes up only now leaves by itself
  if (!launchers_.status(launcher_)) kill(launcher_, SIGKILL);
  for (const auto& [number, rank] : ranks_) {
    if (rank.status) continue;
    if (rank.shim > 0) kill(rank.shim, SIGKILL);
    if (rank.pid > 0) kill(rank.pid, SIGKILL);
  }
  // Orphans come to this process: the job is gone when there is no child left. The next attempt must not meet
  // a rank of this one (locks, RAM disk). What is below another attempt's launcher is none of its business.
  const SteadyTime give_up = steady_clock::now() + kKillPatience;
  while (steady_clock::now() < give_up && !launchers_.kill_all_of(launcher_))
    std::this_thread::sleep_for(milliseconds(1));
  if (steady_clock::now() >= give_up)
    log_warn("a process of the last attempt does not end (waiting for a disk?)");
  std::filesystem::remove_all(folder_, ignored);
  if (!memory_folder_.empty()) std::filesystem::remove_all(memory_folder_, ignored);
}

}  // namespace mso
