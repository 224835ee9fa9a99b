// Control groups of a step: which version, where a process is, and children for decoder threads. Acts on the file system;
// `root` lets tests use a made-up one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/cpu_list.h"

namespace mso {

struct CgroupMounts {
  int version = 0;                    // 2: unified; 1: separate trees (hybrid counts as 1); 0: none
  std::filesystem::path unified;      // where cgroup2 is mounted
  std::filesystem::path cpuset;       // v1: where the cpuset tree is mounted
  std::vector<std::string> controllers;  // v2: of the root; v1: mounted ones
};
CgroupMounts find_cgroup_mounts(const std::filesystem::path& root = "/");  // from <root>/proc/self/mountinfo

// The cgroup of process `pid` (folder in the file system): the cpuset tree for v1, the unified one for v2.
std::optional<std::filesystem::path> cgroup_of(const CgroupMounts& mounts, pid_t pid, const std::filesystem::path& root = "/");
// Pure: the path in "/proc/PID/cgroup" text; v1: of the cpuset controller.
std::optional<std::string> cgroup_path_in(std::string_view proc_cgroup, int version);

// Children of one task's cgroup for its decoder threads. Made by root in the task's parent (slurmstepd), given to `owner`
// with nothing but what moving own threads takes: v1: the child's `tasks`; v2: `cgroup.threads` of child and parent,
// and `cgroup.procs` of the parent. v2
// parents get cgroup.max.depth 1 and room for the children of `sharers` tasks (Slurm may keep all tasks of a step in one
// cgroup), so that a task can make nothing below.
struct DecoderCgroups {
  std::filesystem::path parent, image, video;
};
// Error: what the kernel refused; nothing is left behind then.
DecoderCgroups make_decoder_cgroups(const CgroupMounts& mounts, const std::filesystem::path& parent, const std::string& name,
                                    const CpuSet& image, const CpuSet& video, uid_t owner, int sharers = 1);
// Removes them; a child whose threads are not gone within `deadline_s` is left, and named in the result (empty: all gone).
std::vector<std::string> remove_decoder_cgroups(const std::filesystem::path& parent,
                                                const std::string& name, double deadline_s);

// The cgroups of a Slurm step on this machine that can have such children: v1: the step's, in the cpuset tree; v2: its
// tasks'. Found by name (v1: of the node's slurmd,
// which may not be the only one), so that they can be cleaned by whoever comes later.
std::vector<std::filesystem::path> step_cgroups(const CgroupMounts& mounts, uint32_t job, uint32_t step,
                                                const std::string& node);

}  // namespace mso
