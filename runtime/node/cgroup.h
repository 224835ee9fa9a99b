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

// Pure. Does a cgroup path belong to `job` on `node`? Paths of Slurm: v1 "/slurm/uid_1000/job_12/step_0", "/slurm_NODE/…";
// v2 "/system.slice/slurmstepd.scope/job_12/…", "/system.slice/NODE_slurmstepd.scope/…".
bool is_cgroup_of_job(std::string_view path, uint32_t job, std::string_view node);
// Pure. v2: is it where Slurm keeps tasks of that step, "…/job_12/step_0/user/task_3" or "…/task_special"? With another
// proctrack plugin a task stays in slurmd's own cgroup, which is nobody's to change.
bool is_task_cgroup(std::string_view path, uint32_t job, uint32_t step, std::string_view node);

// Children of one task's cgroup for its decoder threads. Made by root in the task's parent (slurmstepd), given to `owner`
// with nothing but what moving own threads takes: v1: the child's `tasks`; v2: `cgroup.threads` of child and parent,
// and `cgroup.procs` of the parent. v2
// parents get cgroup.max.depth 1 and room for the children of `sharers` tasks (Slurm may keep all tasks of a step in one
// cgroup), so that a task can make nothing below.
struct DecoderCgroups {
  std::filesystem::path parent, image, video;
};
// Error: what the kernel refused; nothing is left behind then, and the parent is as it was.
DecoderCgroups make_decoder_cgroups(const CgroupMounts& mounts, const std::filesystem::path& parent, const std::string& name,
                                    const CpuSet& image, const CpuSet& video, uid_t owner, int sharers = 1);
// Removes them. A thread that has just ended is counted for a moment longer: waits for it no longer than `budget_s` and
// takes what it waited off that. A child that is still in use then is left, and named in the result (empty: all gone).
std::vector<std::string> remove_decoder_cgroups(const std::filesystem::path& parent, const std::string& name,
                                                double& budget_s);

// The cgroups of a Slurm step on this machine that can have such children: v1: the step's, in the cpuset tree; v2: its
// tasks'. Found by name, of the node's slurmd, which may not be the only one, so that they can be cleaned by whoever comes later.
std::vector<std::filesystem::path> step_cgroups(const CgroupMounts& mounts, uint32_t job, uint32_t step,
                                                const std::string& node);
// Removes the decoder cgroups that any step of a job has left, and with them Slurm's own folders up to the job's that
// could not go while these were there. What is in use stays, and is named in the result.
std::vector<std::string> remove_left_decoder_cgroups(const CgroupMounts& mounts, uint32_t job, const std::string& node,
                                                     double& budget_s);
// v2: has the kernel kill all tasks of a job at once, however fast they fork (cgroup.kill, Linux 5.14). Slurm's own
// daemons are not in these cgroups. Does nothing elsewhere.
void kill_task_cgroups(const CgroupMounts& mounts, uint32_t job, const std::string& node);

}  // namespace mso
