// The end of a job on a node: its processes, mounts and files go; and the sweep of what dead jobs left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "spank/job_state.h"
#include "spank/plugin_arguments.h"

namespace mso {

// Removes all that is kept of a job (every restart of it) and writes a line to the log. Nothing where nothing
// is there. Never throws: what is left is logged and found by the next sweep. Returns whether all is gone.
bool tear_down_job(uint32_t job, const PluginArguments& arguments, const std::string& reason);

enum class JobKnown { kActive, kGone, kUnknown };
// Asks squeue, with a deadline of seconds and nothing of this process's environment but PATH and SLURM_CONF;
// kUnknown where that does not answer clearly.
JobKnown ask_controller(uint32_t job, const std::filesystem::path& squeue);
// The same for sweep_dead_jobs: after one unclear answer it asks no more, so that a controller that is away
// costs one deadline and not one a job.
std::function<JobKnown(uint32_t)> controller_at(const std::filesystem::path& squeue);
// Of squeue's answer, lines "JOBID STATE" of jobs in all states. Pure.
JobKnown read_squeue(uint32_t job, int exit_code, const std::string& output, const std::string& errors);

// Tears down the jobs of the run folder that are surely over: no slurmstepd and no process of theirs on this
// node, and the controller (`ask`) says so too. In doubt they stay. `spare` is left alone (0: none). Returns
// how many went.
size_t sweep_dead_jobs(const PluginArguments& arguments, const std::function<JobKnown(uint32_t)>& ask,
                       uint32_t spare, const std::string& reason);

}  // namespace mso
