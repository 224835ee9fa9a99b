#include "record/run_history.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"

namespace mso {
namespace {

constexpr size_t kRemembered = 1 << 16;  // steps whose values are kept to compare a repeated one with

class Builder {
 public:
  explicit Builder(RunHistory& history) : h_(history), remembered_(kRemembered) {}

  void add(const Record& record) {
    ++h_.lines;
    std::visit([this](const auto& r) { on(r); }, record);
  }

  void finish() {
    h_.median_step_s = quantile(step_s_, 0.5);
    h_.median_tokens_per_s = quantile(speeds_, 0.5);
    size_t n = std::clamp<size_t>(steps_seen_ / 20, 1, 10);
    auto mean = [](auto begin, auto end) {
      double sum = 0;
      for (auto it = begin; it != end; ++it) sum += *it;
      return begin == end ? kNotANumber : sum / static_cast<double>(end - begin);
    };
    h_.first_loss = mean(first_.begin(), first_.begin() + std::min(n, first_.size()));
    h_.final_loss = mean(last_.end() - std::min(n, last_.size()), last_.end());
    for (auto& [level, writes] : writes_) h_.levels[level].median_write_s = quantile(writes, 0.5);
    for (size_t i = 1; i < h_.attempts.size(); ++i) {
      const AttemptHistory& a = h_.attempts[i];
      double until = a.first_step_began > 0 ? a.first_step_began : a.last;
      h_.down_seconds += std::max(0.0, until - h_.attempts[i - 1].last);
    }
  }

 private:
  struct Remembered {
    int64_t step = -1;
    double loss = 0, grad_norm = 0;
    uint64_t digest = 0;
  };

  // The attempt a line belongs to; times never run backwards (a clock set back, a missing time).
  AttemptHistory& attempt(int number, double& time) {
    if (!(time > 0) || !std::isfinite(time)) time = h_.last_time;
    time = std::max(time, h_.last_time);
    if (h_.first_time == 0) h_.first_time = time;
    h_.last_time = time;
    if (h_.attempts.empty() || (number > 0 && number != h_.attempts.back().number))
      open_attempt(number, time);
    h_.attempts.back().last = time;
    return h_.attempts.back();
  }
  void open_attempt(int number, double time) {
    AttemptHistory a;
    a.number = number > 0 ? number : static_cast<int>(h_.attempts.size()) + 1;
    a.begin = a.last = time;
    a.stood_at = h_.steps_finished;
    h_.attempts.push_back(std::move(a));
  }

  void on(const StartRecord& r) {
    double time = r.time;
    AttemptHistory* a = &attempt(r.attempt, time);
    if (a->start || a->first_step >= 0 || a->end) {  // the same number once more, or none at all
      open_attempt(r.attempt, time);
      a = &h_.attempts.back();
    }
    a->start = r;
    if (!r.run_id.empty()) h_.run_id = r.run_id;
    if (r.steps > 0) h_.steps_planned = r.steps;
    if (r.ranks > 0) h_.ranks = r.ranks;
    if (r.parameters > 0) h_.parameters = r.parameters;
  }

  void on(const StepRecord& r) {
    double time = r.time;
    AttemptHistory& a = attempt(r.attempt, time);
    int segment = static_cast<int>(h_.attempts.size()) - 1;
    double at = time - h_.first_time;
    double step_s = std::isfinite(r.step_s) ? std::max(r.step_s, 0.0) : 0;
    if (a.first_step < 0) {
      a.first_step = r.step;
      a.first_step_began = std::max(a.begin, time - step_s);
    }
    a.last_step = std::max(a.last_step, r.step);
    if (step_s > 0) {
      double speed = static_cast<double>(r.tokens) / step_s;
      h_.speed.add({at, speed, r.step, segment});
      h_.data_wait.add({at, std::clamp(r.data_wait_s / step_s, 0.0, 1.0), r.step, segment});
      speeds_.push_back(static_cast<float>(speed));
      step_s_.push_back(static_cast<float>(step_s));
    }
    Remembered& slot = remembered_[static_cast<size_t>(r.step) % kRemembered];
    uint64_t digest = hash64(r.sample_digest);
    double x = static_cast<double>(r.step);
    if (!std::isfinite(r.loss)) {
      ++h_.not_finite_count;
      if (h_.not_finite.size() < 200) h_.not_finite.push_back({x, r.loss, r.step, segment});
    }
    if (r.step <= h_.steps_finished && steps_seen_ > 0) {
      repeat(r, a, slot, digest, step_s, x, segment);
      return;
    }
    slot = {r.step, r.loss, r.grad_norm, digest};
    if (a.caught_up == 0) a.caught_up = time;
    h_.steps_finished = r.step;
    ++steps_seen_;
    // Lines of the curve may cross attempts: over steps the run is one.
    h_.loss.add({x, r.loss, r.step, 0});
    h_.grad_norm.add({x, r.grad_norm, r.step, 0});
    h_.learning_rate.add({x, r.lr, r.step, 0});
    if (std::isfinite(r.loss)) {
      if (first_.size() < 10) first_.push_back(r.loss);
      last_.push_back(r.loss);
      if (last_.size() > 10) last_.pop_front();
    }
    h_.tokens += r.tokens;
    h_.samples += r.samples;
    h_.step_seconds += step_s;
    h_.wait_seconds += std::isfinite(r.data_wait_s) ? r.data_wait_s : 0;
    h_.stall_seconds += std::isfinite(r.snapshot_stall_s) ? r.snapshot_stall_s : 0;
  }

  void repeat(const StepRecord& r, AttemptHistory& a, const Remembered& before, uint64_t digest, double step_s,
              double x, int segment) {
    ++a.repeated;
    ++h_.repeated_steps;
    h_.repeated_seconds += step_s;
    h_.repeated_loss.add({x, r.loss, r.step, segment});
    if (before.step != r.step) {
      ++h_.repeated_unknown;
      return;
    }
    auto same = [](double p, double q) { return std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q); };
    bool samples = before.digest == digest;
    if (samples && same(before.loss, r.loss) && same(before.grad_norm, r.grad_norm)) return;
    ++a.repeated_differ;
    if (++h_.repeated_differ > 1) return;
    auto digits = [](double v) { return nlohmann::json(v).dump(); };
    h_.first_difference = "Step " + std::to_string(r.step) + " in attempt " + std::to_string(a.number) + ": ";
    if (!samples)
      h_.first_difference += "trained on other samples";
    else if (!same(before.loss, r.loss))
      h_.first_difference += "loss " + digits(r.loss) + ", was " + digits(before.loss);
    else
      h_.first_difference += "gradient norm " + digits(r.grad_norm) + ", was " + digits(before.grad_norm);
  }

  void on(const EvalRecord& r) {
    double time = r.time;
    attempt(r.attempt, time);
    h_.final_eval = r.loss;
    CurvePoint point{static_cast<double>(r.step), r.loss, r.step, 0};
    if (!std::isfinite(r.loss)) return;
    // A repeated evaluation replaces the first one.
    while (!h_.eval_loss.empty() && h_.eval_loss.back().step >= r.step) h_.eval_loss.pop_back();
    if (h_.eval_loss.size() >= 2000) {  // keep every other
      for (size_t i = 0; i < h_.eval_loss.size() / 2; ++i) h_.eval_loss[i] = h_.eval_loss[2 * i + 1];
      h_.eval_loss.resize(h_.eval_loss.size() / 2);
    }
    h_.eval_loss.push_back(point);
  }

  void on(const SnapshotRecord& r) {
    double time = r.time;
    attempt(r.attempt, time);
    SnapshotMark mark;
    mark.time = time;
    mark.write_s = static_cast<float>(std::isfinite(r.write_s) ? std::max(r.write_s, 0.0) : 0);
    mark.attempt = h_.attempts.back().number;
    mark.step = r.step;
    mark.bytes = r.bytes;
    mark.level = static_cast<int8_t>(std::clamp(r.level, 0, 9));
    mark.state = !r.ok ? SnapshotMark::kFailed : r.degraded ? SnapshotMark::kDegraded : SnapshotMark::kOk;
    h_.snapshots.push_back(mark);
    LevelSummary& level = h_.levels[mark.level];
    ++(mark.state == SnapshotMark::kOk         ? level.good
       : mark.state == SnapshotMark::kDegraded ? level.degraded
                                               : level.failed);
    if (r.ok) {
      level.last_step = r.step;
      level.last_bytes = r.bytes;
      level.longest_write_s = std::max(level.longest_write_s, static_cast<double>(mark.write_s));
      writes_[mark.level].push_back(mark.write_s);
    }
    if (!r.error.empty()) {
      auto it = level.errors.find(r.error);
      if (it != level.errors.end())
        ++it->second;
      else
        ++level.errors[level.errors.size() < 20 ? r.error : "(other)"];
    }
  }

  void on(const ResumeRecord& r) {
    double time = r.time;
    AttemptHistory& a = attempt(r.attempt, time);
    a.resume = r;
  }

  void on(const IncidentRecord& r) {
    IncidentRecord kept = r;
    AttemptHistory& a = attempt(r.attempt, kept.time);
    kept.attempt = a.number;
    ++h_.incident_count;
    std::string kind = r.kind.empty() ? "(no kind)" : r.kind;
    ++h_.incidents_of_kind[h_.incidents_of_kind.size() < 50 || h_.incidents_of_kind.contains(kind)
                               ? kind
                               : "(other)"];
    if (r.kind != "bad_sample" && r.kind != "level_recovered" && r.kind != "metrics_lost") {
      a.last_words = r.message.empty() ? r.kind : r.message;
      if (a.first_step < 0 && a.first_words.empty()) a.first_words = a.last_words;
    }
    if (h_.incidents.size() < RunHistory::kIncidentsKept) h_.incidents.push_back(std::move(kept));
  }

  void on(const StorageRecord& r) {
    const auto [sum, before] = take_newest(r, r.source, 50, &storage_, &h_.storage);
    if (!sum) return;
    sum->reads += before->reads, sum->bytes += before->bytes, sum->errors += before->errors;
    sum->cached += before->cached, sum->missed += before->missed, sum->elsewhere += before->elsewhere;
    sum->given_up += before->given_up;
    double& worst = h_.worst_p99_ms[r.source];
    worst = std::max(worst, r.p99_ms);
  }

  void on(const DataRecord& r) {
    const auto [sum, before] = take_newest(r, r.modality, 8, &data_, &h_.data);
    if (!sum) return;
    sum->samples += before->samples, sum->deferred += before->deferred, sum->waits += before->waits;
    sum->decode_s += before->decode_s;
    sum->compactions += before->compactions, sum->compacted_bytes += before->compacted_bytes;
    sum->overflow_bytes += before->overflow_bytes;
    sum->memory_peak = std::max(sum->memory_peak, before->memory_peak);
  }

  void on(const EndRecord& r) {
    double time = r.time;
    AttemptHistory& a = attempt(r.attempt, time);
    a.end = r;
    if (!r.message.empty()) a.last_words = r.message;
  }

  void on(const UnknownRecord&) { ++h_.unknown_lines; }

  // {newest of this attempt, sum of those before}: counters begin anew with each attempt.
  template <typename R>
  using Counted = std::map<std::string, std::pair<R, R>>;

  // Shows `r` under `name`, of at most `most` names, and returns what is shown and what the caller adds to it: the sum of
  // the attempts before. Nothing beyond `most`.
  template <typename R>
  std::pair<R*, const R*> take_newest(const R& r, const std::string& name, size_t most, Counted<R>* kept,
                                      std::map<std::string, R>* shown) {
    double time = r.time;
    const int number = attempt(r.attempt, time).number;
    if (shown->size() >= most && !shown->contains(name)) return {};
    auto& [counted, before] = (*kept)[name];
    if (counted.attempt != number) before = (*shown)[name];
    counted = r;
    counted.attempt = number;
    return {&((*shown)[name] = counted), &before};
  }

  RunHistory& h_;
  std::vector<Remembered> remembered_;
  Counted<DataRecord> data_;
  Counted<StorageRecord> storage_;
  std::vector<float> speeds_, step_s_;
  std::map<int, std::vector<float>> writes_;
  std::vector<double> first_;
  std::deque<double> last_;
  size_t steps_seen_ = 0;
};

void read_ledger(const std::filesystem::path& path, RunHistory& history) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    auto text = [&](const char* key) -> std::string {
      auto it = entry.find(key);
      return it != entry.end() && it->is_string() ? it->get<std::string>() : "";
    };
    std::string reason = text("reason");
    if (reason.empty()) reason = "(no reason)";
    if (history.bad_samples.size() >= 50 && !history.bad_samples.contains(reason)) reason = "(other)";
    BadSamples& bad = history.bad_samples[reason];
    ++bad.count;
    ++history.bad_sample_count;
    if (bad.examples.size() < 3) {
      std::string example = text("key"), shard = text("shard"), detail = text("detail");
      if (!shard.empty()) example += (example.empty() ? "" : " in ") + shard;
      if (!detail.empty()) example += (example.empty() ? "" : ": ") + detail;
      if (!example.empty()) bad.examples.push_back(example.substr(0, 300));
    }
  }
}

void flatten(const YAML::Node& node, const std::string& key, int depth,
             std::vector<std::pair<std::string, std::string>>& out) {
  if (out.size() > 2000) return;
  if (node.IsMap() && depth < 20) {
    for (const auto& item : node)
      flatten(item.second, (key.empty() ? "" : key + ".") + item.first.as<std::string>(""), depth + 1, out);
    return;
  }
  if (node.IsScalar() || node.IsNull()) {
    out.emplace_back(key, node.IsNull() ? "" : node.Scalar());
    return;
  }
  YAML::Emitter text;
  text.SetSeqFormat(YAML::Flow);
  text.SetMapFormat(YAML::Flow);
  text << node;
  out.emplace_back(key, text.c_str() ? text.c_str() : "");
}

void read_config(const std::filesystem::path& path, RunHistory& history) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  try {
    flatten(YAML::Load(read_file(path, 1 << 20)), "", 0, history.config);
  } catch (const std::exception& error) {
    history.config_error = error.what();
  }
}

}  // namespace

RunHistory read_run(const std::filesystem::path& folder) {
  RunHistory history;
  std::error_code ignored;
  bool is_file = std::filesystem::is_regular_file(folder, ignored);
  std::filesystem::path metrics = is_file ? folder : folder / "metrics.jsonl";
  history.folder = is_file ? folder.parent_path() : folder;
  if (!std::filesystem::exists(metrics, ignored))
    throw Error("no metrics.jsonl", folder.string(), "give the folder of a run (train.run_dir)",
                ExitCode::kBadUsage);
  MetricsReader reader(metrics);
  Builder builder(history);
  for (Record record; reader.next(record);) builder.add(record);
  builder.finish();
  history.damaged = reader.damaged();
  history.torn = reader.torn();
  read_ledger(history.folder / "ledger.jsonl", history);
  read_config(history.folder / "config.yaml", history);
  return history;
}

RunHistory::State RunHistory::state(double now) const {
  if (attempts.empty()) return State::kEmpty;
  const AttemptHistory& last = attempts.back();
  if (last.end) {
    if (last.end->exit_code == static_cast<int>(ExitCode::kSuccess)) return State::kFinished;
    if (last.end->exit_code == static_cast<int>(ExitCode::kStoppedBySignal)) return State::kStopped;
    return State::kFailed;
  }
  double patience = std::max(60.0, std::isfinite(median_step_s) ? 10 * median_step_s : 0);
  return now - last_time < patience ? State::kRunning : State::kInterrupted;
}

int64_t RunHistory::recoveries() const {
  return std::count_if(attempts.begin(), attempts.end(),
                       [](const AttemptHistory& a) { return a.resume.has_value(); });
}

double RunHistory::lost_seconds(size_t attempt) const {
  if (attempt == 0 || attempt >= attempts.size()) return 0;
  const AttemptHistory& a = attempts[attempt];
  return std::max(0.0, (a.caught_up > 0 ? a.caught_up : a.last) - attempts[attempt - 1].last);
}

}  // namespace mso
