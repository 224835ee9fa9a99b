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
#include "node/mount_table.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream all;
  all << in.rdbuf();
  return std::move(all).str();
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

bool remove_in_time(const fs::path& folder, double& budget_s) {
  constexpr double kMoment_s = 0.01;
  for (;;) {
    if (remove_folder(folder)) return true;
    if (errno != EBUSY || budget_s <= 0) return false;
    const timespec moment{0, static_cast<long>(kMoment_s * 1e9)};
    ::nanosleep(&moment, nullptr);
    budget_s -= kMoment_s;
  }
}

constexpr std::string_view kScope = "slurmstepd.scope";

std::string step_name(uint32_t step) {
  if (step == 0xfffffffb) return "step_batch";
  if (step == 0xfffffffa) return "step_interactive";
  return "step_" + std::to_string(step);
}

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (!part.empty()) parts.push_back(part);
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return parts;
}

// Which part of a path is the job's folder; none: it is not of that job on that node.
std::optional<size_t> job_part(const std::vector<std::string_view>& parts, uint32_t job, std::string_view node) {
  const std::string wanted = "job_" + std::to_string(job);
  const auto of_node = [node](std::string_view name) { return !node.empty() && name == node; };
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] != wanted) continue;
    const std::string_view above = parts[i - 1];
    bool ours = above == kScope;
    if (!ours && above.ends_with(kScope) && above.size() > kScope.size() + 1 && above[above.size() - kScope.size() - 1] == '_')
      ours = of_node(above.substr(0, above.size() - kScope.size() - 1));
    if (!ours && i >= 2 && above.starts_with("uid_"))
      ours = parts[i - 2] == "slurm" || (parts[i - 2].starts_with("slurm_") && of_node(parts[i - 2].substr(6)));
    if (ours) return i;
  }
  return std::nullopt;
}

// Folders "…/job_12/STEP" + `below` (patterns both) of a job on this node.
std::vector<fs::path> cgroups_of_steps(const CgroupMounts& mounts, uint32_t job, const std::string& step,
                                       const std::string& node, const std::string& below) {
  const fs::path& base = mounts.version == 2 ? mounts.unified : mounts.cpuset;
  if (base.empty()) return {};
  std::vector<std::string> trees;
  if (mounts.version == 2)
    trees = {"/system.slice/*slurmstepd.scope/", "/*slurmstepd.scope/"};
  else
    trees = {"/slurm/uid_*/", "/slurm_" + node + "/uid_*/"};
  std::vector<fs::path> found;
  for (const std::string& tree : trees) {
    glob_t matches = {};
    const std::string pattern = base.string() + tree + "job_" + std::to_string(job) + "/" + step + below;
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0)
      for (size_t i = 0; i < matches.gl_pathc; ++i) {
        // With several slurmd on a machine each has a tree of its own.
        const std::string_view path = matches.gl_pathv[i];
        if (is_cgroup_of_job(path.substr(base.string().size()), job, node)) found.emplace_back(path);
      }
    ::globfree(&matches);
  }
  return found;
}

// What a v2 parent was like before children were made in it, to be as it was where that fails. Other tasks may have children
// there too.
struct ParentBefore {
  explicit ParentBefore(const fs::path& folder)
      : parent(folder), depth(trimmed(read_text(parent / "cgroup.max.depth"))),
        descendants(trimmed(read_text(parent / "cgroup.max.descendants"))) {
    const std::vector<std::string> enabled = words(trimmed(read_text(parent / "cgroup.subtree_control")));
    has_cpuset = std::ranges::find(enabled, "cpuset") != enabled.end();
    for (size_t i = 0; i < 2; ++i) {
      struct stat info = {};
      owned[i] = ::stat((parent / kGiven[i]).c_str(), &info) == 0;
      owner[i] = info.st_uid;
    }
  }
  void restore() const noexcept {
    const auto quietly = [](auto&& act) {
      try {
        act();
      } catch (const std::exception&) {
        // What made this necessary is what is told.
      }
    };
    if (!has_cpuset) quietly([&] { write_value(parent / "cgroup.subtree_control", "-cpuset"); });
    if (!descendants.empty()) quietly([&] { write_value(parent / "cgroup.max.descendants", descendants); });
    if (!depth.empty()) quietly([&] { write_value(parent / "cgroup.max.depth", depth); });
    for (size_t i = 0; i < 2; ++i)
      if (owned[i]) quietly([&] { give_to(parent / kGiven[i], owner[i]); });
  }

  static constexpr const char* kGiven[2] = {"cgroup.procs", "cgroup.threads"};
  fs::path parent;
  std::string depth, descendants;
  bool has_cpuset = false, owned[2] = {};
  uid_t owner[2] = {};
};

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
  std::vector<std::string> v1;
  for (const MountEntry& mount : read_mount_table(root)) {
    const fs::path point = mount.point;
    if (mount.type == "cgroup2" && mounts.unified.empty()) mounts.unified = root == "/" ? point : root / point.relative_path();
    if (mount.type != "cgroup") continue;
    for (const std::string& option : words(mount.super_options, ',')) {
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
  const ParentBefore before(parent);
  try {
    if (mounts.version == 2)
      make_threaded_children(parent, made, image, video, owner, sharers);
    else
      make_cpuset_children(parent, made, image, video, owner);
  } catch (...) {
    double budget_s = 0;
    remove_decoder_cgroups(parent, name, budget_s);
    if (mounts.version == 2) before.restore();
    throw;
  }
  return made;
}

std::vector<std::string> remove_decoder_cgroups(const fs::path& parent, const std::string& name, double& budget_s) {
  std::vector<std::string> left;
  for (const char* kind : kKinds) {
    const fs::path child = child_of(parent, name, kind);
    if (!remove_in_time(child, budget_s)) left.push_back(child.string());
  }
  return left;
}

bool is_cgroup_of_job(std::string_view path, uint32_t job, std::string_view node) {
  return job_part(parts_of(path), job, node).has_value();
}

bool is_task_cgroup(std::string_view path, uint32_t job, uint32_t step, std::string_view node) {
  const std::vector<std::string_view> parts = parts_of(path);
  const std::optional<size_t> at = job_part(parts, job, node);
  if (!at || !parts[*at - 1].ends_with(kScope) || parts.size() != *at + 4 || parts[*at + 1] != step_name(step) ||
      parts[*at + 2] != "user" || !parts[*at + 3].starts_with("task_"))
    return false;
  const std::string_view task = parts[*at + 3].substr(5);
  return task == "special" || (!task.empty() && task.find_first_not_of("0123456789") == std::string_view::npos);
}

std::vector<fs::path> step_cgroups(const CgroupMounts& mounts, uint32_t job, uint32_t step, const std::string& node) {
  return cgroups_of_steps(mounts, job, step_name(step), node, mounts.version == 2 ? "/user/task_*" : "");
}

std::vector<std::string> remove_left_decoder_cgroups(const CgroupMounts& mounts, uint32_t job, const std::string& node,
                                                     double& budget_s) {
  std::vector<std::string> left;
  const bool unified = mounts.version == 2;
  for (const fs::path& parent : cgroups_of_steps(mounts, job, "step_*", node, unified ? "/user/task_*" : "")) {
    std::vector<fs::path> children;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(parent, failed)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("mso_") && (name.ends_with(".image") || name.ends_with(".video"))) children.push_back(entry.path());
    }
    if (children.empty()) continue;
    bool all = true;
    for (const fs::path& child : children)
      if (!remove_in_time(child, budget_s)) {
        left.push_back(child.string());
        all = false;
      }
    if (!all) continue;
    // Whatever is still in use refuses to go.
    const fs::path step = unified ? parent.parent_path().parent_path() : parent;
    if (unified) {
      remove_folder(parent);
      remove_folder(parent.parent_path());
      remove_folder(step / "slurm");
    }
    remove_folder(step);
    remove_folder(step.parent_path());
  }
  return left;
}

void kill_task_cgroups(const CgroupMounts& mounts, uint32_t job, const std::string& node) {
  if (mounts.version != 2) return;
  for (const fs::path& tasks : cgroups_of_steps(mounts, job, "step_*", node, "/user")) {
    try {
      write_value(tasks / "cgroup.kill", "1");
    } catch (const Error&) {
      // An older kernel; they are killed one by one.
    }
  }
}

}  // namespace mso
