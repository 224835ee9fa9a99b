#include "elastic/local_attempt.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace mso {

namespace {

constexpr std::chrono::seconds kKillPatience{10};

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

LocalAttempt::LocalAttempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers, AttemptKind kind)
    : Attempt(options, signals, launchers) {
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
}

LocalAttempt::~LocalAttempt() {
  if (!over_) end_processes();
  launchers_.forget(launcher_);
}

void LocalAttempt::go() {
  // Readers that wait in open(2) go on now; those that come later find a writer.
  go_ = open_file(folder_ / "go", O_RDWR | O_NONBLOCK);
}

const char* LocalAttempt::launcher_name() const {
  return options_.ranks > 1 || !options_.mpirun_args.empty() ? options_.mpirun.c_str() : "the rank";
}

std::vector<std::string> LocalAttempt::command_line() const {
  std::vector<std::string> command;
  if (options_.ranks > 1 || !options_.mpirun_args.empty()) {
    command = {options_.mpirun, "-n", std::to_string(options_.ranks), "--bind-to", "none"};
    command.insert(command.end(), options_.mpirun_args.begin(), options_.mpirun_args.end());
  }
  command.push_back(options_.rank_program.string());
  command.insert(command.end(), options_.program.begin(), options_.program.end());
  return command;
}

void LocalAttempt::spawn(AttemptKind kind) {
  const std::string fifo = (folder_ / "status").string(), go = (folder_ / "go").string();
  const auto prepare = [&] {
    setenv("MSO_RANK_STATUS", fifo.c_str(), 1);
    if (kind != AttemptKind::kFirst) unsetenv("MSO_KILL_AT");  // a fault is injected once
    unsetenv("MSO_STANDBY");
    if (kind == AttemptKind::kStandby) setenv("MSO_STANDBY", go.c_str(), 1);
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
  };
  start_launcher(command_line(), prepare, SIGKILL);
}

void LocalAttempt::rank_started(Rank& rank, const std::string&) {
  rank.shim_fd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, rank.shim, 0)));
  const bool gone = !rank.shim_fd.valid() && errno == ESRCH;
  // Gone already: its "end" is in the FIFO, or it never comes.
  if (gone) read_reports();
  if (gone && !rank.status) rank.status = SIGKILL;
}

void LocalAttempt::add_watched(std::vector<pollfd>& watched) const {
  watched.push_back({reports_.get(), POLLIN, 0});
  for (const auto& [number, rank] : ranks_)
    if (!rank.status && rank.shim_fd.valid()) watched.push_back({rank.shim_fd.get(), POLLIN, 0});
}

void LocalAttempt::look_for_lost_ranks() {
  for (auto& [number, rank] : ranks_) {
    if (rank.status || !rank.shim_fd.valid()) continue;
    pollfd gone{rank.shim_fd.get(), POLLIN, 0};
    if (poll(&gone, 1, 0) != 1) continue;
    read_reports();                           // its last words may have come in between
    if (!rank.status) rank.status = SIGKILL;  // killed itself, and the rank with it
  }
}

void LocalAttempt::ask_to_leave() {
  for (const auto& [number, rank] : ranks_)
    if (!rank.status) kill(rank.pid, SIGUSR1);
}

void LocalAttempt::read_reports() {
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

void LocalAttempt::end_processes() {
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
  const SteadyTime give_up = std::chrono::steady_clock::now() + kKillPatience;
  while (std::chrono::steady_clock::now() < give_up && !launchers_.kill_all_of(launcher_))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (std::chrono::steady_clock::now() >= give_up)
    log_warn("a process of the last attempt does not end (waiting for a disk?)");
  std::filesystem::remove_all(folder_, ignored);
  if (!memory_folder_.empty()) std::filesystem::remove_all(memory_folder_, ignored);
}

}  // namespace mso
