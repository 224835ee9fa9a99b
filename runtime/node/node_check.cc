#include "node/node_check.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "node/cgroup.h"
#include "node/nvme_lanes.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPluginName = "spank_mso.so";

CheckLine ok(std::string name, std::string found) { return {std::move(name), CheckState::kOk, std::move(found), ""}; }
CheckLine warn(std::string name, std::string found, std::string hint) {
  return {std::move(name), CheckState::kWarn, std::move(found), std::move(hint)};
}
CheckLine fail(std::string name, std::string found, std::string hint) {
  return {std::move(name), CheckState::kFail, std::move(found), std::move(hint)};
}

std::string bytes(uint64_t count) { return format_bytes(static_cast<double>(count)); }

fs::path find_slurm_conf(const NodeCheckOptions& options) {
  if (!options.slurm_conf.empty()) return options.slurm_conf;
  if (const char* variable = std::getenv("SLURM_CONF"); variable && *variable) return variable;
  // Configless slurmd keeps what it fetched under /run/slurm/conf.
  for (const char* place : {"etc/slurm/slurm.conf", "run/slurm/conf/slurm.conf", "etc/slurm-llnl/slurm.conf"})
    if (std::error_code failed; fs::exists(options.root / place, failed)) return options.root / place;
  return {};
}

// The file a plugstack line means: Slurm looks up a bare name in PluginDir.
fs::path plugin_file(const PlugstackLine& line, const fs::path& slurm_conf) {
  if (fs::path(line.plugin).is_absolute()) return line.plugin;
  const std::string folders = slurm_conf_value(slurm_conf, "PluginDir");
  for (const std::string& folder : {folders, std::string("/usr/lib/x86_64-linux-gnu/slurm-wlm"), std::string("/usr/lib64/slurm"),
                                    std::string("/usr/lib/slurm"), std::string("/usr/local/lib/slurm")})
    if (std::error_code failed; !folder.empty() && fs::exists(fs::path(folder) / line.plugin, failed)) return fs::path(folder) / line.plugin;
  return line.plugin;
}

CheckLine check_plugin_file(const fs::path& file, const std::string& installed) {
  const std::string name = "plugin file";
  struct stat info = {};
  if (::stat(file.c_str(), &info) != 0)
    return fail(name, file.string() + ": " + std::strerror(errno), "make install on this node, or correct the plugstack line");
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return fail(name, file.string() + " can be written by others than its owner", "chmod go-w " + file.string());
  // Slurm's own functions are resolved when they are called, so the file opens outside of Slurm too.
  void* plugin = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!plugin) return fail(name, file.string() + ": " + ::dlerror(), "install the libraries it names");
  const void* version = ::dlsym(plugin, "plugin_version");
  const std::string built = version ? slurm_version_text(*static_cast<const unsigned int*>(version)) : "";
  ::dlclose(plugin);
  if (built.empty()) return fail(name, file.string() + " is not a Slurm plugin", "make install on this node");
  const std::string found = file.string() + ", built for Slurm " + built;
  if (installed.empty()) return warn(name, found + "; the installed version is unknown", "put Slurm's commands in PATH");
  if (!installed.starts_with(built.substr(0, built.rfind('.'))))
    return fail(name, found + ", installed is " + installed, "build the plugin again with --with-slurm for this Slurm");
  return ok(name, found + ", installed is " + installed);
}

void check_plugin(const NodeCheckOptions& options, std::vector<CheckLine>& lines) {
  const std::string hint = "optional /path/to/spank_mso.so in plugstack.conf (see etc/plugstack.conf.d/mso.conf)";
  const fs::path conf = find_slurm_conf(options);
  if (conf.empty()) {
    lines.push_back(fail("Slurm", "no slurm.conf in $SLURM_CONF, /etc/slurm, /run/slurm/conf", "run this on a Slurm node"));
    return;
  }
  lines.push_back(ok("Slurm", (options.slurm_version.empty() ? "version unknown" : options.slurm_version) + ", " + conf.string()));
  std::string plugstack = slurm_conf_value(conf, "PlugStackConfig");
  if (plugstack.empty()) plugstack = (conf.parent_path() / "plugstack.conf").string();
  const std::vector<PlugstackLine> found = find_plugstack_lines(plugstack, kPluginName);
  if (found.empty()) {
    lines.push_back(fail("plugstack line", "none for " + std::string(kPluginName) + " in " + plugstack, hint));
    return;
  }
  const PlugstackLine& line = found.front();
  std::string text = line.where + ": " + (line.required ? "required" : "optional");
  for (const std::string& argument : line.arguments) text += " " + argument;
  if (found.size() > 1)
    lines.push_back(fail("plugstack line", text + "; again in " + found[1].where, "keep one of the two lines"));
  else if (line.required)
    lines.push_back(warn("plugstack line", text, "optional: a broken plugin would then stop jobs that do not use it"));
  else
    lines.push_back(ok("plugstack line", text));
  lines.push_back(check_plugin_file(plugin_file(line, conf), options.slurm_version));
}

void check_state_folder(const NodeCheckOptions& options, bool facts_kept, std::vector<CheckLine>& lines) {
  const fs::path folder = options.root / "run/mso";
  struct stat info = {};
  if (::lstat(folder.c_str(), &info) != 0) {
    lines.push_back(warn("/run/mso", "not there yet", "made when slurmd starts with the plugin, or by the first job with --mso"));
  } else if (!S_ISDIR(info.st_mode) || info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH))) {
    lines.push_back(fail("/run/mso", "is not a folder that only root can write", "remove it: the plugin makes it anew"));
  } else {
    int jobs = 0;
    std::error_code failed;
    for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
      jobs += it->is_directory(failed) && std::isdigit(static_cast<unsigned char>(it->path().filename().string()[0]));
    lines.push_back(ok("/run/mso", std::to_string(jobs) + (jobs == 1 ? " job" : " jobs") + " prepared on this node"));
  }
  if (facts_kept)
    lines.push_back(ok("node facts", "kept in " + std::string(kNodeFactsFile)));
  else
    lines.push_back(warn("node facts", "not kept, read now", "restart slurmd with the plugin, or run mso-node-facts --write as root"));
}

void check_cgroups(const NodeCheckOptions& options, std::vector<CheckLine>& lines) {
  const CgroupMounts mounts = find_cgroup_mounts(options.root);
  if (mounts.version == 0) {
    lines.push_back(fail("cgroups", "none mounted", "mount cgroup2 on /sys/fs/cgroup"));
    return;
  }
  std::string list;
  for (const std::string& controller : mounts.controllers) list += (list.empty() ? "" : " ") + controller;
  const std::string found = "version " + std::to_string(mounts.version) + ": " + (list.empty() ? "no controllers" : list);
  if (std::ranges::find(mounts.controllers, "cpuset") == mounts.controllers.end())
    lines.push_back(warn("cgroups", found, "without cpuset decoder threads are kept apart by affinity alone"));
  else
    lines.push_back(ok("cgroups", found));
}

void check_memory(const NodeCheckOptions& options, const NodeFacts& facts, std::vector<CheckLine>& lines) {
  lines.push_back(ok("memory", bytes(facts.memory_bytes)));
  struct statfs shm = {};
  if (::statfs((options.root / "dev/shm").c_str(), &shm) != 0 || shm.f_type != TMPFS_MAGIC) {
    lines.push_back(fail("/dev/shm", "is not a RAM disk", "mount a tmpfs there: MPI and training without --mso use it"));
    return;
  }
  const uint64_t total = shm.f_blocks * static_cast<uint64_t>(shm.f_bsize);
  lines.push_back(ok("/dev/shm", "a RAM disk of " + bytes(total)));
}

void check_kernel(const NodeCheckOptions& options, std::vector<CheckLine>& lines) {
  io_uring_params parameters = {};
  const long ring = ::syscall(SYS_io_uring_setup, 1, &parameters);
  if (ring >= 0) {
    ::close(static_cast<int>(ring));
    lines.push_back(ok("io_uring", "works"));
  } else {
    lines.push_back(warn("io_uring", std::strerror(errno), "nvme:// data is read with plain reads (sysctl kernel.io_uring_disabled)"));
  }
  std::error_code failed;
  if (fs::exists(options.root / "sys/kernel/btf/vmlinux", failed))
    lines.push_back(ok("BTF", "/sys/kernel/btf/vmlinux"));
  else
    lines.push_back(warn("BTF", "not in this kernel", "tracing of connections is off"));
}

const char* state_name(CheckState state) {
  return state == CheckState::kOk ? "ok" : state == CheckState::kWarn ? "warn" : "fail";
}

}  // namespace

std::vector<CheckLine> check_cpus(const NodeFacts& facts) {
  if (facts.cpus.empty()) return {fail("CPUs", "none found", "is /sys mounted?")};
  std::set<int> cores, nodes;
  for (const CpuFact& cpu : facts.cpus) cores.insert(cpu.core), nodes.insert(cpu.numa);
  return {ok("CPUs", std::to_string(facts.cpus.size()) + " CPUs, " + std::to_string(cores.size()) + " cores, " +
                         std::to_string(nodes.size()) + " NUMA node" + (nodes.size() == 1 ? "" : "s") + " (" +
                         describe_numa(facts.cpus) + ")")};
}

std::vector<CheckLine> check_gpus(const NodeFacts& facts) {
  std::vector<CheckLine> lines;
  if (facts.gpus.empty()) lines.push_back(ok("GPUs", facts.gpu_note.empty() ? "none" : "none: " + facts.gpu_note));
  for (const GpuFact& gpu : facts.gpus) {
    std::string found = gpu.name + ", " + bytes(gpu.memory_bytes) + ", " + gpu.pci + ", NUMA node " +
                        (gpu.numa < 0 ? "unknown" : std::to_string(gpu.numa));
    if (!gpu.mig.empty()) {
      found += ", MIG:";
      for (const MigFact& instance : gpu.mig) found += " " + bytes(instance.memory_bytes);
    }
    const std::string name = "GPU " + std::to_string(gpu.index);
    if (gpu.numa < 0 && facts.cpus.size() > 1 && std::ranges::any_of(facts.cpus, [](const CpuFact& cpu) { return cpu.numa != 0; }))
      lines.push_back(warn(name, found, "the firmware does not say where it sits: CPU sets are spread evenly"));
    else
      lines.push_back(ok(name, found));
  }
  return lines;
}

std::vector<CheckLine> check_drives(const NodeFacts& facts) {
  std::vector<CheckLine> lines;
  if (facts.nvme.controllers.empty()) lines.push_back(ok("NVMe", "no drive"));
  for (const NvmeController& drive : facts.nvme.controllers) {
    std::string size;
    for (const NvmeNamespace& ns : facts.nvme.namespaces)
      if (std::ranges::find(ns.paths, drive.name) != ns.paths.end()) size += ", " + ns.name + " " + bytes(ns.bytes);
    std::string found = drive.model + " " + drive.serial;
    if (drive.transport == "pcie") {
      found += ", PCIe x" + (drive.lanes ? std::to_string(drive.lanes) : std::string("?"));
      if (drive.gigatransfers > 0) found += " at " + nlohmann::json(drive.gigatransfers).dump() + " GT/s";
      found += ", NUMA node " + (drive.numa < 0 ? std::string("unknown") : std::to_string(drive.numa));
    } else {
      found += ", " + drive.transport + " " + drive.address;
    }
    lines.push_back(ok(drive.name, found + size));
  }
  const DriveReport report = compare_drives({{facts.host, facts.boot_id, facts.nvme}});
  for (const std::string& path : report.multipath) lines.push_back(ok("NVMe multipath", path));
  for (const std::string& duplicate : report.duplicates)
    lines.push_back(fail("NVMe duplicates", duplicate, "give one of them an identifier of its own, or take it out"));
  return lines;
}

std::vector<CheckLine> check_node(const NodeCheckOptions& options, const NodeFacts& facts, bool facts_kept) {
  std::vector<CheckLine> lines;
  check_plugin(options, lines);
  check_state_folder(options, facts_kept, lines);
  check_cgroups(options, lines);
  for (auto* part : {&check_cpus, &check_gpus, &check_drives})
    for (CheckLine& line : (*part)(facts)) lines.push_back(std::move(line));
  check_memory(options, facts, lines);
  check_kernel(options, lines);
  return lines;
}

std::string format_check(const std::vector<CheckLine>& lines) {
  size_t width = 0;
  std::map<CheckState, int> count;
  for (const CheckLine& line : lines) width = std::max(width, line.name.size()), ++count[line.state];
  std::string text;
  for (const CheckLine& line : lines) {
    const std::string state = state_name(line.state);
    text += state + std::string(6 - state.size(), ' ') + line.name + std::string(width + 2 - line.name.size(), ' ') + line.found +
            (line.limit.empty() ? "" : " (wanted: " + line.limit + ")") + "\n";
    if (!line.hint.empty()) text += std::string(width + 8, ' ') + "-> " + line.hint + "\n";
  }
  return text + std::to_string(count[CheckState::kOk]) + " ok, " + std::to_string(count[CheckState::kWarn]) + " warn, " +
         std::to_string(count[CheckState::kFail]) + " fail\n";
}

nlohmann::json check_json(const std::vector<CheckLine>& lines) {
  nlohmann::json list = nlohmann::json::array();
  for (const CheckLine& line : lines)
    list.push_back({{"name", line.name}, {"state", state_name(line.state)}, {"found", line.found}, {"limit", line.limit}, {"hint", line.hint}});
  return {{"checks", list}, {"exit_code", check_exit_code(lines)}};
}

int check_exit_code(const std::vector<CheckLine>& lines) {
  return std::ranges::any_of(lines, [](const CheckLine& line) { return line.state == CheckState::kFail; }) ? 1 : 0;
}

}  // namespace mso
