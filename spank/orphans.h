// Processes that outlive their job (slurmstepd was killed): found by the cgroup Slurm put them in, never by
// user or environment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// Does a cgroup path belong to `job` on `node`? Paths of Slurm: v1 "/slurm/uid_1000/job_12/step_0",
// "/slurm_NODE/…"; v2
// "/system.slice/slurmstepd.scope/job_12/…", "/system.slice/NODE_slurmstepd.scope/…".
bool is_cgroup_of_job(std::string_view path, uint32_t job, std::string_view node);

// Its processes, by /proc/PID/cgroup; never this one or a slurmstepd, which are Slurm's own.
std::vector<pid_t> processes_of_job(uint32_t job, std::string_view node,
                                    const std::filesystem::path& proc = "/proc");
// A slurmstepd works for the job.
bool has_step_daemon(uint32_t job, const std::filesystem::path& proc = "/proc");

// Kills them, again and again until there are none or `deadline_s` is over. Returns how many there were;
// `left`: how many would not go.
size_t kill_processes_of_job(uint32_t job, std::string_view node, double deadline_s, size_t& left);

}  // namespace mso
