// Starts the ranks of a job on this machine, notices at once when one dies, ends the rest and starts again
// (what `mso run` does). Decisions: restart_policy.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "elastic/restart_policy.h"

namespace mso {

// A Slurm allocation in which the ranks are steps.
struct SlurmJob {
  std::string job_id;
  std::vector<std::string> nodes;      // all of the allocation
  int spare_nodes = 0;                 // how many of them wait for others to be lost
  int tasks = 0;                       // of the allocation; 0: not said
  std::vector<std::string> srun_args;  // given to srun before the program
};

struct SupervisorOptions {
  int ranks = 1;                   // in a Slurm job 0: what the allocation says
  std::optional<SlurmJob> slurm;   // none: mpirun on this machine
  std::vector<std::string> program;      // command line of one rank
  std::vector<std::string> mpirun_args;  // given to mpirun before the program
  std::string mpirun = "mpirun";       // not used for one rank without mpirun_args: that is started directly
  std::filesystem::path rank_program;  // mso-rank
  std::filesystem::path run_dir;       // metrics.jsonl there shows progress; empty: none is looked for
  RestartLimits limits;
  // Once an attempt has finished a step, the next one's ranks are started, and wait with their libraries loaded and MPI
  // up (MSO_STANDBY, see standby.h) to take over at once. `program` must know of it.
  bool standby = false;
  double stop_timeout_s =
      120;  // for ranks to take a snapshot and leave, after the supervisor was told to stop
  double leave_timeout_s = 60;  // for the other ranks to leave, after one has ended well
};

struct AttemptRecord {
  double ran_s = 0;  // from the start to its end
  AttemptOutcome outcome;
  std::string what;          // "rank 1 (pid 4711): killed by signal 9 (Killed)"
  long last_step = -1;       // highest step in metrics.jsonl when it ended; -1: none
  bool from_standby = false;  // its ranks stood by
  double restart_s = -1;     // from the end of the previous attempt being noticed to this one's start
  double first_step_s = -1;  // the same to its first finished step; -1: it finished none
};

struct SupervisorReport {
  std::vector<AttemptRecord> attempts;
  int exit_code = 0;
  std::string reason;
};

// Runs the job to its end. One log line per incident. While it runs, SIGINT, SIGTERM, SIGHUP and SIGUSR1 to
// this process become SIGUSR1 to the ranks (snapshot, then exit 75); a second SIGINT or SIGTERM ends them at
// once. All ranks are gone when it returns, and when this process is killed. MSO_KILL_AT (an injected fault)
// is given to the first attempt only. Error where nothing can be started. The calling process should have no
// other children.
SupervisorReport supervise(const SupervisorOptions& options);

// A small table of attempts, and the end.
std::string format_report(const SupervisorReport& report);

// Highest "step" among step records in the last part of a metrics.jsonl from byte `from` on; -1: none, or no
// file.
long last_recorded_step(const std::filesystem::path& metrics, uint64_t from = 0);

}  // namespace mso
