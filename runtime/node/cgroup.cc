#include "node/cgroup.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream all;
  all << in.rdbuf();
  return std::move(all).str();
}

// Octal escapes of mountinfo: "\040" is a blank.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> words(const std::string& text, char separator = ' ') {
  std::vector<std::string> list;
  std::stringstream in(text);
  for (std::string word; std::getline(in, word, separator);)
    if (!word.empty() && word != "\n") list.push_back(word.substr(0, word.find('\n')));
  return list;
}

// Kernel files want one write; cgroup folders are the kernel's, no user can put a link there.
void write_value(const fs::path& file, const std::string& value) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw system_error("cannot open", file.string());
  const ssize_t written = ::write(fd, value.data(), value.size());
  const int error = errno;
  ::close(fd);
  if (written != static_cast<ssize_t>(value.size())) throw system_error("cannot write \"" + value + "\"", file.string(), error);
}

void give_to(const fs::path& file, uid_t owner) {
  if (::chown(file.c_str(), owner, static_cast<gid_t>(-1)) != 0) throw system_error("cannot give away", file.string());
}

void make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) throw system_error("cannot make the cgroup", folder.string());
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

constexpr const char* kKinds[] = {"image", "video"};

fs::path child_of(const fs::path& parent, const std::string& name, const char* kind) {
  return parent / (name + "." + kind);
}

bool remove_folder(const fs::path& folder) { return ::rmdir(folder.c_str()) == 0 || errno == ENOENT; }

// v2: a child of its own with only the threaded controllers it needs; its parent becomes a threaded domain, which keeps its
// processes and its memory and I/O limits.
void make_threaded_children(const fs::path& parent, const DecoderCgroups& made, const CpuSet& image, const CpuSet& video,
                            uid_t owner, int sharers) {
  write_value(parent / "cgroup.max.depth", "1");
  write_value(parent / "cgroup.max.descendants", std::to_string(2 * std::max(sharers, 1)));
  for (const fs::path& child : {made.image, made.video}) {
    make_folder(child);
    write_value(child / "cgroup.type", "threaded");
  }
  const std::vector<std::string> there = words(read_text(parent / "cgroup.controllers"));
  if (std::ranges::find(there, "cpuset") == there.end())
    throw Error("the cpuset controller is not delegated", parent.string(), "ConstrainCores=yes in cgroup.conf");
  write_value(parent / "cgroup.subtree_control", "+cpuset");
  write_value(made.image / "cpuset.cpus", format_cpu_list(image));
  write_value(made.video / "cpuset.cpus", format_cpu_list(video));
  // A thread may be moved by who may write to both ends and to cgroup.procs of what is above both: nothing else is given.
  give_to(parent / "cgroup.procs", owner);
  give_to(parent / "cgroup.threads", owner);
  give_to(made.image / "cgroup.threads", owner);
  give_to(made.video / "cgroup.threads", owner);
}

void make_cpuset_children(const fs::path& parent, const DecoderCgroups& made, const CpuSet& image, const CpuSet& video,
                          uid_t owner) {
  const std::string memory = trimmed(read_text(parent / "cpuset.mems"));
  for (const auto& [child, cpus] : {std::pair(made.image, image), std::pair(made.video, video)}) {
    make_folder(child);
    write_value(child / "cpuset.cpus", format_cpu_list(cpus));
    write_value(child / "cpuset.mems", memory);
    give_to(child / "tasks", owner);
  }
}

}  // namespace

CgroupMounts find_cgroup_mounts(const fs::path& root) {
  CgroupMounts mounts;
  std::ifstream in(root / "proc/self/mountinfo");
  std::vector<std::string> v1;
  for (std::string line; std::getline(in, line);) {
    // ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE SUPEROPTIONS
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> before = words(line.substr(0, dash)), after = words(line.substr(dash + 3));
    if (before.size() < 6 || after.size() < 3) continue;
    const fs::path point = unescaped(before[4]);
    if (after[0] == "cgroup2" && mounts.unified.empty()) mounts.unified = root == "/" ? point : root / point.relative_path();
    if (after[0] != "cgroup") continue;
    for (const std::string& option : words(after[2], ',')) {
      if (option == "cpuset" && mounts.cpuset.empty()) mounts.cpuset = root == "/" ? point : root / point.relative_path();
      if (option != "rw" && option != "ro" && option.find('=') == std::string::npos) v1.push_back(option);
    }
  }
  std::ranges::sort(v1);
  v1.erase(std::unique(v1.begin(), v1.end()), v1.end());
  if (!mounts.cpuset.empty() || (mounts.unified.empty() && !v1.empty())) {
    mounts.version = 1;
    mounts.controllers = v1;
  } else if (!mounts.unified.empty()) {
    mounts.version = 2;
    mounts.controllers = words(trimmed(read_text(mounts.unified / "cgroup.controllers")));
  }
  return mounts;
}

std::optional<std::string> cgroup_path_in(std::string_view proc_cgroup, int version) {
  while (!proc_cgroup.empty()) {
    const size_t end = std::min(proc_cgroup.find('\n'), proc_cgroup.size());
    const std::string_view line = proc_cgroup.substr(0, end);
    proc_cgroup.remove_prefix(std::min(end + 1, proc_cgroup.size()));
    const size_t first = line.find(':'), second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (version == 2 ? controllers == ",," : controllers.find(",cpuset,") != std::string::npos)
      return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

std::optional<fs::path> cgroup_of(const CgroupMounts& mounts, pid_t pid, const fs::path& root) {
  const std::optional<std::string> path =
      cgroup_path_in(read_text(root / "proc" / std::to_string(pid) / "cgroup"), mounts.version);
  const fs::path& base = mounts.version == 2 ? mounts.unified : mounts.cpuset;
  if (!path || base.empty()) return std::nullopt;
  return base / fs::path(*path).relative_path();
}

DecoderCgroups make_decoder_cgroups(const CgroupMounts& mounts, const fs::path& parent, const std::string& name,
                                    const CpuSet& image, const CpuSet& video, uid_t owner, int sharers) {
  if (mounts.version == 0) throw Error("no cgroups on this node", parent.string());
  DecoderCgroups made{parent, child_of(parent, name, "image"), child_of(parent, name, "video")};
  try {
    if (mounts.version == 2)
      make_threaded_children(parent, made, image, video, owner, sharers);
    else
      make_cpuset_children(parent, made, image, video, owner);
  } catch (const Error&) {
    remove_decoder_cgroups(parent, name, 0);
    throw;
  }
  return made;
}

std::vector<std::string> remove_decoder_cgroups(const fs::path& parent, const std::string& name,
                                                double deadline_s) {
  std::vector<std::string> left;
  double waited = 0;
  for (const char* kind : kKinds) {
    const fs::path child = child_of(parent, name, kind);
    bool gone = remove_folder(child);
    // A thread that has just ended is still counted for a moment.
    for (; !gone && errno == EBUSY && waited < deadline_s; waited += 0.01) {
      const timespec moment{0, 10'000'000};
      ::nanosleep(&moment, nullptr);
      gone = remove_folder(child);
    }
    if (!gone) left.push_back(child.string());
  }
  return left;
}

std::vector<fs::path> step_cgroups(const CgroupMounts& mounts, uint32_t job, uint32_t step, const std::string& node) {
  std::string name = "step_" + std::to_string(step);
  if (step == 0xfffffffb) name = "step_batch";
  if (step == 0xfffffffa) name = "step_interactive";
  std::vector<std::string> patterns;
  const std::string below = "job_" + std::to_string(job) + "/" + name;
  if (mounts.version == 2) {
    for (const char* scope : {"/system.slice/*slurmstepd.scope/", "/system.slice/*slurmd.service/", "/*slurmstepd.scope/"})
      patterns.push_back(mounts.unified.string() + scope + below + "/user/task_*");
  } else {
    // With several slurmd on a machine each has a tree of its own.
    for (const std::string& tree : {std::string("/slurm"), "/slurm_" + node}) patterns.push_back(mounts.cpuset.string() + tree + "/uid_*/" + below);
  }
  std::vector<fs::path> found;
  for (const std::string& pattern : patterns) {
    glob_t matches = {};
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0)
      found.insert(found.end(), matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
  }
  return found;
}

}  // namespace mso
