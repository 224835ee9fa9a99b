#include "elastic/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "elastic/local_attempt.h"
#include "elastic/slurm_attempt.h"
#include "elastic/slurm_tools.h"

namespace mso {

using std::chrono::duration;
using std::chrono::steady_clock;

namespace {

constexpr uint64_t kTailBytes = 1 << 18;
constexpr double kNodePatience_s = 15;  // for a node to start a task, before it counts as lost
constexpr double kLookInterval_s = 0.1;  // for the first step after a restart

double seconds(SteadyTime from, SteadyTime to) {
  return duration<double>(to - from).count();
}

uint64_t file_size_or_zero(const std::filesystem::path& path) {
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(path, failed);
  return failed ? 0 : size;
}

// False when told to stop meanwhile.
bool sleep_unless_stopped(SignalDescriptor& signals, double delay_s) {
  const SteadyTime until =
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(duration<double>(delay_s));
  while (steady_clock::now() < until) {
    pollfd watched{signals.fd(), POLLIN, 0};
    poll(&watched, 1, static_cast<int>(seconds(steady_clock::now(), until) * 1000) + 1);
    while (int signal = signals.take()) {
      if (signal != SIGCHLD) return false;
    }
  }
  return true;
}

// Null where none is wanted or can be started: the next attempt then starts from nothing, as ever.
std::unique_ptr<Attempt> start_standby(const SupervisorOptions& options, SignalDescriptor& signals, Launchers& launchers) {
  if (!options.standby || options.slurm) return nullptr;
  try {
    return std::make_unique<LocalAttempt>(options, signals, launchers, AttemptKind::kStandby);
  } catch (const Error& error) {
    log_warn("no ranks stand by for a restart: {}", error.what());
    return nullptr;
  }
}

}  // namespace

long last_recorded_step(const std::filesystem::path& metrics, uint64_t from) {
  try {
    const uint64_t size = file_size_or_zero(metrics);
    if (size <= from) return -1;
    const FileDescriptor file = open_file(metrics, O_RDONLY);
    const uint64_t begin = std::max(from, size > kTailBytes ? size - kTailBytes : 0);
    std::string text(size - begin, '\0');
    pread_all(file.get(), text.data(), text.size(), begin, metrics);
    long last = -1;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      if (end == std::string::npos) break;  // a torn line
      const auto record = nlohmann::json::parse(text.data() + at, text.data() + end, nullptr, false);
      at = end + 1;
      if (!record.is_object() || !record.contains("type") || record["type"] != "step") continue;
      const auto step = record.find("step");
      if (step != record.end() && step->is_number_integer()) last = std::max(last, step->get<long>());
    }
    return last;
  } catch (const std::exception&) {
    return -1;  // it may be replaced at this moment; there is a next look
  }
}

SupervisorReport supervise(const SupervisorOptions& options) {
  SignalDescriptor signals;
  Launchers launchers;
  RestartPolicy policy(options.limits);
  SupervisorReport report;
  const std::filesystem::path metrics = options.run_dir.empty() ? "" : options.run_dir / "metrics.jsonl";
  long best_step = metrics.empty() ? -1 : last_recorded_step(metrics);
  SteadyTime noticed{}, previous_end{};
  std::string previous;
  // "--fresh" is for the beginning: a restart goes on with the run that just began.
  SupervisorOptions restart_options = options;
  std::erase(restart_options.program, "--fresh");
  std::unique_ptr<Attempt> standby;
  SlurmPlacement placement;
  if (options.slurm)
    placement = first_placement(options.slurm->nodes, options.ranks, options.slurm->tasks, options.slurm->spare_nodes);

  for (;;) {
    AttemptRecord record;
    const uint64_t metrics_before = metrics.empty() ? 0 : file_size_or_zero(metrics);
    const bool first = report.attempts.empty();
    const SteadyTime begin = steady_clock::now();
    std::unique_ptr<Attempt> owned = std::move(standby);
    if (owned && owned->launcher_alive()) {
      record.from_standby = true;
      owned->go();
      log_info("the ranks that stood by take over");
    } else {
      owned.reset();
      const SupervisorOptions& its_options = first ? options : restart_options;
      if (options.slurm)
        owned = std::make_unique<SlurmAttempt>(its_options, signals, launchers, placement,
                                               static_cast<int>(report.attempts.size()));
      else
        owned = std::make_unique<LocalAttempt>(its_options, signals, launchers,
                                               first ? AttemptKind::kFirst : AttemptKind::kRestart);
    }
    Attempt& attempt = *owned;
    if (!first) record.restart_s = seconds(noticed, begin);

    bool step_seen = metrics.empty();
    while (!attempt.wait(step_seen ? 3600 : kLookInterval_s)) {
      if (step_seen || last_recorded_step(metrics, metrics_before) < 0) continue;
      step_seen = true;
      const SteadyTime now = steady_clock::now();
      record.first_step_s = seconds(first ? begin : noticed, now);
      if (!first) log_info("a step is finished {:.2f} s after {}", record.first_step_s, previous);
      standby = start_standby(restart_options, signals, launchers);
    }
    previous_end = noticed;
    noticed = attempt.noticed();
    if (!step_seen && last_recorded_step(metrics, metrics_before) >= 0) {  // in the last moment
      record.first_step_s = seconds(first ? begin : previous_end, noticed);
    }
    record.ran_s = seconds(begin, noticed);
    record.what = attempt.what();
    const long step = metrics.empty() ? -1 : last_recorded_step(metrics);
    record.last_step = step;
    record.outcome = {.exit_code = attempt.exit_code(),
                      .started = attempt.started(),
                      .progressed = step > best_step,
                      .stop_requested = attempt.stop_requested()};
    best_step = std::max(best_step, step);
    const RestartDecision decision = policy.decide(record.outcome);
    report.attempts.push_back(record);
    report.exit_code = decision.exit_code;
    report.reason = decision.reason;
    if (!decision.restart) {
      if (record.outcome.exit_code != 0) log_info("{}: {}", record.what, decision.reason);
      return report;
    }
    previous = record.what;
    // Where nobody said how a rank ended, or starting again did not help, a node may be gone.
    if (options.slurm && (!attempt.a_rank_told() || record.outcome.exit_code == static_cast<int>(ExitCode::kPeerLost) ||
                          policy.restarts_without_progress() > 1)) {
      const std::set<std::string> lost = lost_nodes(options.slurm->nodes, kNodePatience_s);
      const SlurmPlacement next = next_placement(options.slurm->nodes, placement, lost);
      if (const std::string change = describe_change(placement, next, lost); !change.empty()) log_warn("{}", change);
      if (next.nodes.empty()) {
        report.reason = "no node of the job is left";
        return report;
      }
      placement = next;
    }
    const std::string at = step >= 0 ? " after step " + std::to_string(step) : "";
    if (decision.delay_s > 0) {
      log_warn("{}{}: starting again in {:g} s (no progress in {} attempts)", record.what, at,
               decision.delay_s, policy.restarts_without_progress());
      if (!sleep_unless_stopped(signals, decision.delay_s)) {
        report.exit_code = record.outcome.exit_code;
        report.reason = "stopped while waiting to start again";
        return report;
      }
    } else {
      log_warn("{}{}: starting again", record.what, at);
    }
  }
}

std::string format_report(const SupervisorReport& report) {
  std::string text;
  char line[256];
  const auto cell = [](double value, const char* format) {
    char number[32] = "-";
    if (value >= 0) std::snprintf(number, sizeof number, format, value);
    return std::string(number);
  };
  std::snprintf(line, sizeof line, "%-8s %10s %10s %12s %12s  %s\n", "attempt", "ran for", "last step",
                "restarted in", "next step in", "ended by");
  text += line;
  for (size_t i = 0; i < report.attempts.size(); ++i) {
    const AttemptRecord& a = report.attempts[i];
    std::snprintf(line, sizeof line, "%-8zu %10s %10s %12s %12s  ", i + 1, cell(a.ran_s, "%.1f s").c_str(),
                  cell(static_cast<double>(a.last_step), "%.0f").c_str(), cell(a.restart_s, "%.3f s").c_str(),
                  cell(i == 0 ? -1 : a.first_step_s, "%.2f s").c_str());
    text += line + a.what + "\n";
  }
  const size_t restarts = report.attempts.empty() ? 0 : report.attempts.size() - 1;
  text += std::to_string(restarts) + (restarts == 1 ? " restart; " : " restarts; ") + report.reason +
          ", exit code " + std::to_string(report.exit_code) + "\n";
  return text;
}

}  // namespace mso
