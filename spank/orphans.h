// Processes of a job on this node, such as outlive it when slurmstepd was killed: found by the cgroup Slurm
// put them in, never by user or environment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// By /proc/PID/cgroup; never this one or a slurmstepd, which are Slurm's own. A process whose first thread has
// ended is alive as long as another thread is.
std::vector<pid_t> processes_of_job(uint32_t job, std::string_view node,
                                    const std::filesystem::path& proc = "/proc");
// A slurmstepd works for the job.
bool has_step_daemon(uint32_t job, const std::filesystem::path& proc = "/proc");
// Is the job at work on this node beside the step of this process: another step's slurmstepd, or a process of
// the job's user in a cgroup of the job? What Slurm itself keeps there for the job as a whole (the step
// "extern") does not count.
bool is_at_work(uint32_t job, std::string_view node, uid_t user, const std::filesystem::path& proc = "/proc");

// Kills them, again and again until there are none or `deadline_s` is over. Returns how many there were;
// `left`: how many would not go.
size_t kill_processes_of_job(uint32_t job, std::string_view node, double deadline_s, size_t& left);

}  // namespace mso
