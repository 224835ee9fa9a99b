// What happened in a run, read from its folder in one pass: attempts, curves, snapshots, recoveries,
// incidents. Memory stays small for long runs (a few bytes a step, curves are down-sampled).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/decimate.h"
#include "record/metrics.h"

namespace mso {

// From one start of the processes to their end.
struct AttemptHistory {
  int number = 0;
  std::optional<StartRecord> start;
  std::optional<ResumeRecord> resume;
  std::optional<EndRecord> end;  // absent: killed (or still running)
  double begin = 0, last = 0;    // time of its first and last line
  int64_t first_step = -1, last_step = -1;
  int64_t stood_at = 0;         // the furthest step of the attempts before
  double first_step_began = 0;  // time; 0: no step
  double caught_up = 0;         // time at which it finished the first step beyond stood_at; 0: never
  int64_t repeated = 0, repeated_differ = 0;
  std::string first_words;  // of its first incident before a step: often why the one before ended
  std::string last_words;   // of its last incident or end
};

struct SnapshotMark {
  double time = 0;
  float write_s = 0;
  int attempt = 0;
  int64_t step = 0, bytes = 0;
  int8_t level = 0;
  enum State : int8_t { kOk, kDegraded, kFailed } state = kOk;
};

struct LevelSummary {
  int64_t good = 0, degraded = 0, failed = 0;  // good counts those that are not degraded
  int64_t last_step = -1, last_bytes = 0;
  double median_write_s = kNotANumber, longest_write_s = 0;
  std::map<std::string, int64_t> errors;  // text → how often; at most 20 texts
};

struct BadSamples {
  int64_t count = 0;
  std::vector<std::string> examples;  // "key in shard: detail", at most 3
};

struct RunHistory {
  static constexpr size_t kIncidentsKept = 2000;

  std::filesystem::path folder;
  std::string run_id;
  int64_t steps_planned = 0, steps_finished = 0, parameters = 0;
  int ranks = 0;
  double first_time = 0, last_time = 0;  // 0: no line with a time

  std::vector<AttemptHistory> attempts;
  // Over steps: each step's first run. Over seconds since first_time: every run of a step; segment =
  // attempt's index.
  Decimator loss, grad_norm, learning_rate, repeated_loss{1000};
  Decimator speed, data_wait;          // tokens/s; share 0..1
  std::vector<CurvePoint> eval_loss;   // over steps, at most 2000
  std::vector<CurvePoint> not_finite;  // steps whose loss is not finite, at most 200
  int64_t not_finite_count = 0;
  int64_t repeated_steps = 0, repeated_differ = 0, repeated_unknown = 0;
  std::string first_difference;  // a sentence

  double first_loss = kNotANumber, final_loss = kNotANumber;  // mean of up to ten steps at either end
  double final_eval = kNotANumber;
  double median_tokens_per_s = kNotANumber;
  int64_t tokens = 0, samples = 0;  // of first runs
  // Seconds of first runs; repeated: of steps done again.
  double step_seconds = 0, wait_seconds = 0, stall_seconds = 0, repeated_seconds = 0;
  double down_seconds = 0;  // from an attempt's last line to the beginning of the next one's first step

  std::vector<SnapshotMark> snapshots;
  std::map<int, LevelSummary> levels;
  std::vector<IncidentRecord> incidents;  // the first kIncidentsKept
  std::map<std::string, int64_t> incidents_of_kind;
  int64_t incident_count = 0;

  std::map<std::string, DataRecord> data;        // by modality: the last of each; counters of all attempts added up
  std::map<std::string, StorageRecord> storage;  // by source: the last of each; counters of all attempts added up
  std::map<std::string, double> worst_p99_ms;    // by source

  std::map<std::string, BadSamples> bad_samples;  // by reason, of ledger.jsonl
  int64_t bad_sample_count = 0;
  std::vector<std::pair<std::string, std::string>> config;  // dotted key → value, of config.yaml
  std::string config_error;

  int64_t lines = 0, unknown_lines = 0;
  DamagedLines damaged;
  bool torn = false;

  enum class State { kEmpty, kFinished, kRunning, kStopped, kFailed, kInterrupted };
  // An attempt without an end counts as running while its last line is younger than a minute, or than ten of
  // its median steps.
  State state(double now) const;
  double median_step_s = kNotANumber;

  // Recoveries: attempts that resumed. Seconds lost by one: from the last line before to the first step
  // beyond where the run stood (or to its own last line, if it never got there).
  int64_t recoveries() const;
  double lost_seconds(size_t attempt) const;
};

// `folder` is the run's, or the path of its metrics.jsonl. Error when there is no metrics.jsonl; all other
// files are optional and trouble with them is noted in the history.
RunHistory read_run(const std::filesystem::path& folder);

}  // namespace mso
