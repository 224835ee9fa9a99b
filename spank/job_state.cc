#include "spank/job_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "spank/log_line.h"

namespace mso {

namespace {

constexpr std::string_view kStateVersion = "mso-state 1";

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

void make_folder(const std::filesystem::path& path, mode_t mode) {
  // mkdir's mode is cut by the umask of whoever runs this.
  if (::mkdir(path.c_str(), mode) == 0) {
    if (::chmod(path.c_str(), mode) != 0) throw system_error("cannot set the mode", path.string());
  } else if (errno != EEXIST) {
    throw system_error("cannot make the folder", path.string());
  }
}

}  // namespace

std::string format_job_name(const JobName& name) {
  return std::to_string(name.job) + "." + std::to_string(name.restart);
}

std::optional<JobName> parse_job_name(std::string_view text) {
  JobName name;
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || !parse_number(text.substr(0, dot), name.job) ||
      !parse_number(text.substr(dot + 1), name.restart) || format_job_name(name) != text)
    return std::nullopt;
  return name;
}

std::string format_job_state(const JobState& state) {
  return std::string(kStateVersion) + "\nuid " + std::to_string(state.uid) + "\nsnapshot_bytes " +
         std::to_string(state.snapshot_bytes) + "\nphase " + (state.held ? "held" : state.ready ? "ready" : "making") + "\nsince " +
         std::to_string(state.since) + "\nnode " + state.node + "\n";
}

std::optional<JobState> parse_job_state(std::string_view text) {
  JobState state;
  bool first = true, has_uid = false, has_phase = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (first) {
      if (line != kStateVersion) return std::nullopt;
      first = false;
      continue;
    }
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    const std::string_view name = line.substr(0, blank), value = line.substr(blank + 1);
    if (name == "uid") {
      if (!parse_number(value, state.uid)) return std::nullopt;
      has_uid = true;
    } else if (name == "snapshot_bytes") {
      if (!parse_number(value, state.snapshot_bytes)) return std::nullopt;
    } else if (name == "since") {
      if (!parse_number(value, state.since)) return std::nullopt;
    } else if (name == "phase") {
      state.ready = value == "ready";
      state.held = value == "held";
      has_phase = true;
    } else if (name == "node") {
      state.node = std::string(value.substr(0, 256));
    }  // lines a later version adds are left alone
  }
  if (first || !has_uid || !has_phase) return std::nullopt;
  return state;
}

std::optional<RunDirectory> RunDirectory::open(const std::filesystem::path& path, bool create) {
  if (create) make_folder(path, 0755);
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT && !create) return std::nullopt;
    throw system_error("cannot use the plugin's folder", path.string());
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    throw Error("the plugin's folder is not safe", path.string(),
                "it must be a folder of root's that nobody else may write to; move it away");
  // As the kernel names it in its table of mounts: a folder above may be a link.
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed) throw system_error("cannot use the plugin's folder", path.string(), failed.value());
  return RunDirectory(real);
}

std::vector<JobName> RunDirectory::jobs() const {
  std::vector<JobName> names;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path_.c_str()), ::closedir);
  if (!folder) throw system_error("cannot list", path_.string());
  while (const dirent* entry = ::readdir(folder.get()))
    if (const auto name = parse_job_name(entry->d_name)) names.push_back(*name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<JobName> RunDirectory::jobs(uint32_t job) const {
  std::vector<JobName> names = jobs();
  std::erase_if(names, [job](const JobName& name) { return name.job != job; });
  return names;
}

std::optional<JobState> RunDirectory::read_state(const JobName& job) const {
  try {
    return parse_job_state(read_file(of(job) / "state", 64 << 10));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void RunDirectory::write_state(const JobName& job, const JobState& state) const {
  const std::filesystem::path folder = of(job);
  make_folder(folder, 0711);
  const std::filesystem::path next = folder / "state.new";
  const std::string text = format_job_state(state);
  {
    FileDescriptor file = open_file(next, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    write_all(file.get(), text.data(), text.size(), next);
  }
  if (::rename(next.c_str(), (folder / "state").c_str()) != 0)
    throw system_error("cannot replace", next.string());
}

StateLock::StateLock(const RunDirectory& run, double timeout_s, const std::string& who) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(timeout_s);
  const std::filesystem::path path = run.path() / "lock";
  file_ = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) throw system_error("cannot lock", path.string());
    if (Clock::now() >= end) {
      char holder[128] = "";
      const ssize_t n = ::pread(file_.get(), holder, sizeof holder - 1, 0);
      throw Error("waited too long for the plugin's lock on this node",
                  path.string() + ", held by " +
                      printable(std::string_view(holder, n > 0 ? static_cast<size_t>(n) : 0), 100));
    }
    ::poll(nullptr, 0, 5);
  }
  const std::string text = "process " + std::to_string(::getpid()) + ", " + who;
  if (::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), text.data(), text.size(), 0) < 0) {
    // Only for the message above.
  }
}

}  // namespace mso
