#include "spank/orphans.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace mso {

namespace {

// Root in the plugin; in unit tests whoever runs them.
const uid_t kDaemonOwner = ::geteuid();

std::string read_small(const std::filesystem::path& path) {
  try {
    return read_file(path, 256 << 10);
  } catch (const Error&) {
    return "";  // the process has ended
  }
}

template <typename F>
void each_process(const std::filesystem::path& proc, F&& visit) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc.c_str()), ::closedir);
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) visit(pid, proc / std::string(name));
  }
}

// The program it runs; empty where it has ended and only waits to be reaped.
std::string program_of(const std::filesystem::path& process) {
  std::error_code error;
  return std::filesystem::read_symlink(process / "exe", error).string();
}

// Slurm's own, which end by themselves. By the whole path's last part and by owner: a user may call a program
// so too.
bool is_step_daemon(const std::filesystem::path& process) {
  struct stat info;
  const std::string program = std::filesystem::path(program_of(process)).filename().string();
  return (program == "slurmstepd" || program == "slurmd") && ::stat(process.c_str(), &info) == 0 &&
         info.st_uid == kDaemonOwner;
}

bool is_member(const std::filesystem::path& process, uint32_t job, std::string_view node) {
  const std::string text = read_small(process / "cgroup");  // lines "4:cpuset:/path"
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const size_t first = line.find(':'),
                 second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second != std::string_view::npos && is_cgroup_of_job(line.substr(second + 1), job, node)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

bool is_cgroup_of_job(std::string_view path, uint32_t job, std::string_view node) {
  const std::string wanted = "job_" + std::to_string(job);
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (!part.empty()) parts.push_back(part);
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  const auto of_node = [node](std::string_view name) { return !node.empty() && name == node; };
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] != wanted) continue;
    const std::string_view above = parts[i - 1];
    constexpr std::string_view kScope = "slurmstepd.scope";
    if (above == kScope) return true;
    if (above.ends_with(kScope) && above.size() > kScope.size() + 1 &&
        above[above.size() - kScope.size() - 1] == '_')
      return of_node(above.substr(0, above.size() - kScope.size() - 1));
    if (i >= 2 && above.starts_with("uid_")) {
      const std::string_view root = parts[i - 2];
      if (root == "slurm") return true;
      if (root.starts_with("slurm_")) return of_node(root.substr(6));
    }
  }
  return false;
}

std::vector<pid_t> processes_of_job(uint32_t job, std::string_view node, const std::filesystem::path& proc) {
  std::vector<pid_t> found;
  each_process(proc, [&](pid_t pid, const std::filesystem::path& process) {
    if (pid != ::getpid() && is_member(process, job, node) && !program_of(process).empty() &&
        !is_step_daemon(process))
      found.push_back(pid);
  });
  return found;
}

bool has_step_daemon(uint32_t job, const std::filesystem::path& proc) {
  // slurmstepd: [JOB.STEP]
  const std::string title = "slurmstepd: [" + std::to_string(job) + ".";
  bool found = false;
  each_process(proc, [&](pid_t, const std::filesystem::path& process) {
    // Whose it is comes first: reading a command line can block on a hostile process.
    if (!found && is_step_daemon(process) && read_small(process / "cmdline").starts_with(title)) found = true;
  });
  return found;
}

size_t kill_processes_of_job(uint32_t job, std::string_view node, double deadline_s, size_t& left) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(deadline_s);
  std::set<pid_t> seen;
  for (;;) {
    const std::vector<pid_t> processes = processes_of_job(job, node);
    left = processes.size();
    for (pid_t pid : processes) {
      seen.insert(pid);
      // The number may belong to another process by now: hold it, look again, then kill what is held.
      FileDescriptor held(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      if (held.valid() && is_member("/proc/" + std::to_string(pid), job, node))
        ::syscall(SYS_pidfd_send_signal, held.get(), SIGKILL, nullptr, 0);
    }
    if (processes.empty() || Clock::now() >= end) return seen.size();
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace mso
