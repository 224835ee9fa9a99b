#include "elastic/slurm_attempt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "elastic/slurm_tools.h"

namespace mso {

namespace {
// For srun to end after its tasks were killed. It waits for tasks of a node that is gone; then it is killed, too.
constexpr double kEndPatience_s = 5;
}  // namespace

SlurmAttempt::SlurmAttempt(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers,
                           const SlurmPlacement& placement, int number)
    : Attempt(options, signals, launchers) {
  const std::filesystem::path run = std::filesystem::absolute(options.run_dir);
  folder_ = run.parent_path() /
            ("." + run.filename().string() + ".mso-run-" + options.slurm->job_id + "-" + std::to_string(getpid()) + "-" +
             std::to_string(number));
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (failed)
    throw Error("cannot make a folder beside the run folder", folder_.string() + ": " + failed.message(),
                "train.run_dir must be on storage that all nodes share and this user can write");
  const std::string status = (folder_ / "rank").string();
  const auto prepare = [&] {
    setenv("MSO_RANK_STATUS", status.c_str(), 1);
    if (number > 0) unsetenv("MSO_KILL_AT");
    unsetenv("MSO_STANDBY");
  };
  // srun passes the signal on: where this process is killed, the ranks take a snapshot and leave.
  start_launcher(srun_command(placement, options.slurm->srun_args, options.rank_program.string(), options.program), prepare,
                 SIGUSR1);
}

SlurmAttempt::~SlurmAttempt() {
  if (!over_) end_processes();
  launchers_.forget(launcher_);
}

void SlurmAttempt::rank_started(Rank&, const std::string& step) { step_ = step; }

void SlurmAttempt::read_reports() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    try {
      uint64_t& begin = read_[entry.path()];
      const std::string text = read_file(entry.path(), 1 << 16);
      const size_t end = text.rfind('\n');
      if (end == std::string::npos || end + 1 <= begin) continue;
      const std::string fresh = text.substr(begin, end + 1 - begin);
      begin = end + 1;
      for (size_t at = 0, line_end; (line_end = fresh.find('\n', at)) != std::string::npos; at = line_end + 1)
        note_report(fresh.substr(at, line_end - at));
    } catch (const Error&) {
      // Not readable at this moment; srun's end tells, too.
    }
  }
}

void SlurmAttempt::ask_to_leave() { kill(launcher_, SIGUSR1); }

void SlurmAttempt::end_processes() {
  // At once: Slurm by itself leaves KillWait seconds between SIGTERM and SIGKILL.
  if (!launchers_.status(launcher_) && !step_.empty()) kill_step(options_.slurm->job_id, step_);
  if (!launchers_.status(launcher_) && step_.empty()) kill(launcher_, SIGTERM);
  const SteadyTime give_up = after(kEndPatience_s);
  while (launchers_.reap(), !launchers_.status(launcher_) && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (!launchers_.status(launcher_)) {
    log_warn("srun does not end (a node that does not answer?): going on without it");
    kill(launcher_, SIGKILL);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace mso
