#include "spank/tear_down.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/subprocess.h"
#include "node/cgroup.h"
#include "spank/log_line.h"
#include "spank/orphans.h"
#include "spank/snapshot_mount.h"

namespace mso {

namespace {
constexpr double kKillDeadlineS = 5, kSqueueDeadlineS = 5, kCgroupDeadlineS = 0.5;
// A million files take a few seconds; where it could not be done the first time, others should not wait for it.
constexpr double kEmptyDeadlineS = 20, kEmptyAgainS = 0.5;
// A job waits for it in its prolog.
constexpr auto kSweepDeadline = std::chrono::seconds(10);
// A step that is just being set up has a folder before it has processes.
constexpr int64_t kYoungS = 60;
}  // namespace

bool tear_down_job(uint32_t job, const PluginArguments& arguments, const std::string& reason) {
  const auto start = std::chrono::steady_clock::now();
  LogLine line("teardown");
  line.add("job", job).add("reason", reason);
  bool clean = true;
  try {
    const auto run = RunDirectory::open(arguments.run_dir, false);
    if (!run) return true;
    const std::vector<JobName> names = run->jobs(job);
    if (names.empty()) return true;
    std::optional<JobState> state;
    for (const JobName& name : names)
      if (auto known = run->read_state(name)) state = known;
    size_t left = 0, orphans = 0;
    const std::string node = state ? state->node : "";
    if (arguments.kill_orphans) orphans = kill_processes_of_job(job, node, kKillDeadlineS, left);
    double budget_s = kCgroupDeadlineS;
    for (const std::string& cgroup : remove_left_decoder_cgroups(find_cgroup_mounts(), job, node, budget_s))
      log_line(LogLine("cgroup").add("job", job).add("left", cgroup), true);
    std::string failed;
    for (const JobName& name : names) {
      try {
        const auto kept = run->read_state(name);
        empty_job_folder(*run, name, kept && kept->held ? kEmptyAgainS : kEmptyDeadlineS);
      } catch (const std::exception& error) {
        failed = error.what();
      }
    }
    const StateLock lock(*run, arguments.lock_timeout_s, "tear-down of job " + std::to_string(job));
    for (const JobName& name : names) {
      try {
        remove_job_folder(*run, name);
      } catch (const std::exception& error) {
        failed = error.what();
      }
    }
    clean = failed.empty() && left == 0;
    if (state)
      line.add("user", state->uid).add("node", state->node).add("snapshot_bytes", state->snapshot_bytes);
    line.add("orphans", orphans);
    if (left > 0) line.add("orphans_left", left);
    if (!failed.empty()) line.add("error", failed);
  } catch (const std::exception& error) {
    clean = false;
    line.add("error", error.what());
  }
  line.add("ms", static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                           std::chrono::steady_clock::now() - start)
                                           .count()));
  line.add("result", clean ? "ok" : "failed");
  log_line(line, !clean);
  return clean;
}

JobKnown read_squeue(uint32_t job, int exit_code, const std::string& output, const std::string& errors) {
  if (exit_code != 0)
    return errors.find("Invalid job id") != std::string::npos ? JobKnown::kGone : JobKnown::kUnknown;
  // All states were asked for: a job that is known has a line, and one that is not is an error.
  JobKnown known = JobKnown::kUnknown;
  std::istringstream lines(output);
  std::string id, state;
  while (lines >> id >> state) {
    // Of an array every task is told; in doubt this one lives.
    known = JobKnown::kActive;
    if (id != std::to_string(job)) continue;
    static const std::set<std::string> over = {"COMPLETED", "CANCELLED",     "FAILED",    "TIMEOUT",  "NODE_FAIL",
                                               "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "REVOKED"};
    return over.contains(state) ? JobKnown::kGone : JobKnown::kActive;
  }
  return known;
}

JobKnown ask_controller(uint32_t job, const std::filesystem::path& squeue) {
  // Nothing of this process's own environment but where things are: variables of squeue's change what it says.
  std::vector<std::string> environment;
  for (const char* name : {"PATH", "SLURM_CONF"})
    if (const char* value = std::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  const Outcome outcome = run_program({squeue.string(), "--noheader", "--states=all",
                                       "--jobs=" + std::to_string(job), "--format=%A %T"},
                                      kSqueueDeadlineS, 1 << 20, &environment);
  if (outcome.not_started || outcome.timed_out) return JobKnown::kUnknown;
  return read_squeue(job, outcome.exit_code, outcome.output, outcome.errors);
}

std::function<JobKnown(uint32_t)> controller_at(const std::filesystem::path& squeue) {
  return [squeue, away = false](uint32_t job) mutable {
    const JobKnown known = away ? JobKnown::kUnknown : ask_controller(job, squeue);
    away = known == JobKnown::kUnknown;
    return known;
  };
}

size_t sweep_dead_jobs(const PluginArguments& arguments, const std::function<JobKnown(uint32_t)>& ask,
                       uint32_t spare, const std::string& reason) {
  const auto run = RunDirectory::open(arguments.run_dir, false);
  if (!run) return 0;
  std::set<uint32_t> jobs;
  for (const JobName& name : run->jobs()) jobs.insert(name.job);
  size_t gone = 0;
  const auto end = std::chrono::steady_clock::now() + kSweepDeadline;
  for (uint32_t job : jobs) {
    if (std::chrono::steady_clock::now() >= end) break;  // the next sweep goes on
    if (job == spare || has_step_daemon(job)) continue;
    bool young = false;
    for (const JobName& name : run->jobs(job))
      if (const auto state = run->read_state(name)) {
        const int64_t age = static_cast<int64_t>(std::time(nullptr)) - state->since;
        young = young || (age >= 0 && age < kYoungS && !state->ready && !state->held);
      }
    // An orphan of a dead job keeps it from nothing: whether the job is over is the controller's word alone.
    if (young || ask(job) != JobKnown::kGone) continue;
    gone += tear_down_job(job, arguments, reason);
  }
  return gone;
}

}  // namespace mso
