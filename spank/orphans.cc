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
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "node/cgroup.h"

namespace mso {

namespace {

// Root in the plugin; in unit tests whoever runs them.
const uid_t kDaemonUser = ::getuid();

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

// Threads beside the first one; visits none where there are no others.
template <typename F>
void each_thread(const std::filesystem::path& process, F&& visit) {
  struct stat info;
  // A link for each, and two: saves listing those of every thread of the kernel.
  if (::stat((process / "task").c_str(), &info) == 0 && info.st_nlink == 3) return;
  each_process(process / "task", [&](pid_t, const std::filesystem::path& thread) { visit(thread); });
}

std::string exe_of(const std::filesystem::path& process_or_thread) {
  std::error_code error;
  return std::filesystem::read_symlink(process_or_thread / "exe", error).string();
}

// The program it runs; empty where it has ended and only waits to be reaped. A first thread that has ended
// does not tell, others do.
std::string program_of(const std::filesystem::path& process) {
  std::string program = exe_of(process);
  if (program.empty())
    each_thread(process, [&](const std::filesystem::path& thread) {
      if (program.empty()) program = exe_of(thread);
    });
  return program;
}

// The real user it runs as. Not whose the folder in /proc is: that of a process that cannot be dumped is
// root's, and everybody can make such a process.
std::optional<uid_t> user_of(const std::filesystem::path& process) {
  const std::string text = read_small(process / "status");
  constexpr std::string_view kField = "\nUid:\t";
  const size_t at = text.find(kField);
  if (at == std::string::npos) return std::nullopt;
  uid_t user = 0;
  const char* begin = text.data() + at + kField.size();
  if (std::from_chars(begin, text.data() + text.size(), user).ec != std::errc()) return std::nullopt;
  return user;
}

// Slurm's own, which end by themselves. By the program's name (Debian: "slurmstepd-wlm"; "slurmstepd (deleted)"
// where its file was replaced since) and by user: a user may call a program so too.
bool is_step_daemon(const std::filesystem::path& process) {
  const std::string program = std::filesystem::path(program_of(process)).filename().string();
  return (program.starts_with("slurmstepd") || program.starts_with("slurmd")) && user_of(process) == kDaemonUser;
}

bool names_job(const std::filesystem::path& cgroup_file, uint32_t job, std::string_view node) {
  const std::string text = read_small(cgroup_file);  // lines "4:cpuset:/path"
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

bool is_member(const std::filesystem::path& process, uint32_t job, std::string_view node) {
  if (names_job(process / "cgroup", job, node)) return true;
  if (!exe_of(process).empty()) return false;
  // The first thread has ended: v1 says "/" of it.
  bool member = false;
  each_thread(process, [&](const std::filesystem::path& thread) {
    member = member || names_job(thread / "cgroup", job, node);
  });
  return member;
}

// "12.0" of "slurmstepd: [12.0]" where a slurmstepd works for the job; else empty.
std::string step_of_daemon(const std::filesystem::path& process, uint32_t job) {
  // Whose it is comes first: reading a command line can block on a hostile process.
  if (!is_step_daemon(process)) return "";
  constexpr std::string_view kTitle = "slurmstepd: [";
  const std::string title = read_small(process / "cmdline");
  const std::string name = std::to_string(job) + ".";
  if (!title.starts_with(kTitle) || !std::string_view(title).substr(kTitle.size()).starts_with(name)) return "";
  return title.substr(kTitle.size(), title.find(']') - kTitle.size());
}

}  // namespace

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
  bool found = false;
  each_process(proc, [&](pid_t, const std::filesystem::path& process) {
    found = found || !step_of_daemon(process, job).empty();
  });
  return found;
}

bool is_at_work(uint32_t job, std::string_view node, uid_t user, const std::filesystem::path& proc) {
  const std::string whole = std::to_string(job) + ".extern";
  bool found = false;
  each_process(proc, [&](pid_t pid, const std::filesystem::path& process) {
    if (found || pid == ::getpid()) return;
    const std::string step = step_of_daemon(process, job);
    found = !step.empty() && step != whole;
    // The processes Slurm keeps in a job's cgroups are root's.
    if (!found && user != kDaemonUser && user_of(process) == user)
      found = is_member(process, job, node) && !program_of(process).empty();
  });
  return found;
}

size_t kill_processes_of_job(uint32_t job, std::string_view node, double deadline_s, size_t& left) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(deadline_s);
  std::set<pid_t> seen;
  const CgroupMounts mounts = find_cgroup_mounts();
  for (;;) {
    const std::vector<pid_t> processes = processes_of_job(job, node);
    left = processes.size();
    if (left > 0) kill_task_cgroups(mounts, job, std::string(node));
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
