// The line that says how training goes: live on a terminal, a plain log line every few seconds elsewhere.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/metrics.h"
#include "record/terminal.h"

namespace mso {

// All that the line shows, as plain data.
struct ProgressView {
  int64_t step = 0;
  int64_t steps = 0;  // 0: not known; then no bar and no time left
  double loss = kNotANumber;
  double tokens_per_s = kNotANumber;
  double data_wait = kNotANumber;  // share 0..1 of the recent steps' time
  double left_s = kNotANumber;
  struct Level {
    int level;
    int64_t step;  // of the last good snapshot; < 0: none yet
    double ago_s;
    bool failing;  // the last try failed or was degraded
  };
  std::vector<Level> levels;
  std::optional<double> eval_loss;
  int64_t resumed_from = -1;  // < 0: not resumed
  bool repeating = false;     // a step that an earlier attempt had finished
  int64_t incidents = 0;
};

// At most `width` columns (as far as "step N" allows). What matters less goes first when there is no room:
// resumed-from, the levels' ages, evaluation, incidents, the bar, data wait, levels, time left, speed.
std::string progress_line(const ProgressView& view, int width, bool utf8, bool color);
// For logs: everything, no bar, no control sequence.
std::string progress_plain(const ProgressView& view, bool utf8);

struct ProgressOptions {
  int64_t steps = 0;            // planned in all
  double plain_interval_s = 5;  // train.log_interval_s
  std::optional<ResumeRecord> resume;
};

// Give it each record that is written to metrics.jsonl. Rank 0 has one; the other ranks hold a LogsAboveLine
// (terminal.h) where find_terminal().live. While it lives, log lines appear above the live line. Make and end
// it while no other thread logs; all else is thread-safe.
class Progress {
 public:
  explicit Progress(ProgressOptions options, Terminal terminal = find_terminal());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepRecord& record);  // redraws at most five times a second
  void eval(const EvalRecord& record);
  void snapshot(const SnapshotRecord& record);
  void incident(const IncidentRecord& record);
  // Draws the last state, leaves the line and gives the terminal back to the log. Idempotent.
  void finish();

  ProgressView view() const;

 private:
  ProgressView view_locked() const;
  void draw(bool now);

  struct Recent {
    double at, step_s, tokens, data_wait_s;
  };
  struct LastSnapshot {
    int64_t step = -1;
    double at = 0;
    bool seen = false, failing = false;
  };

  mutable std::mutex mutex_;
  ProgressOptions options_;
  Terminal terminal_;
  std::shared_ptr<LiveLine> line_;
  std::unique_ptr<LogsAboveLine> logs_;
  std::deque<Recent> recent_;
  std::array<LastSnapshot, 3> levels_;
  ProgressView view_;
  double last_draw_ = 0;
  bool dirty_ = false, finished_ = false;
};

}  // namespace mso
