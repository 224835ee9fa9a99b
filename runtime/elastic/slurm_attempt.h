// Ranks as a step of a Slurm job, started by srun: mso-rank writes each one's end into a file beside the run folder.
#pragma once

#include "elastic/attempt.h"
#include "elastic/slurm_launch.h"

namespace mso {

class SlurmAttempt final : public Attempt {
 public:
  // Starts srun. `number`: of this attempt, from 0; a fault (MSO_KILL_AT) is given to the first only.
  SlurmAttempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers,
               const SlurmPlacement& placement, int number);
  ~SlurmAttempt() override;

 private:
  void rank_started(Rank& rank, const std::string& step) override;
  void read_reports() override;
  double look_interval_s() const override { return 0.05; }
  void ask_to_leave() override;
  void end_processes() override;
  const char* launcher_name() const override { return "srun"; }

  std::filesystem::path folder_;  // status files of the ranks
  std::map<std::filesystem::path, uint64_t> read_;  // how far each was read
  std::string step_;
};

}  // namespace mso
