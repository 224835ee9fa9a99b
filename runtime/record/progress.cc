#include "record/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/log.h"
#include "record/format.h"

namespace mso {
namespace {

constexpr double kRedrawSeconds = 0.2;
constexpr double kWindowSeconds = 20;  // speed, waiting and time left are those of the last so many seconds

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kCyan = "\x1b[36m";
constexpr const char* kReset = "\x1b[0m";

std::string styled(const std::string& text, const char* style, bool color) {
  return color ? style + text + kReset : text;
}

std::string bar(double share, int width, bool utf8, bool color) {
  share = std::clamp(share, 0.0, 1.0);
  if (utf8) {
    int halves = static_cast<int>(share * width * 2);
    std::string done, rest;
    for (int i = 0; i < halves / 2; ++i) done += "━";
    if (halves % 2) done += "╸";
    for (int i = (halves + 1) / 2; i < width; ++i) rest += color ? "━" : "─";
    return styled(done, kCyan, color) + styled(rest, kDim, color);
  }
  int inner = width - 2, done = static_cast<int>(share * inner);
  std::string text = "[" + std::string(done, '=');
  if (done < inner) text += '>' + std::string(inner - done - 1, ' ');
  return text + "]";
}

std::string level_text(const ProgressView::Level& level, bool age, bool color) {
  std::string text = "L" + std::to_string(level.level);
  if (level.step >= 0) text += " " + std::to_string(level.step);
  if (level.step >= 0 && age) text += " (" + format_duration(level.ago_s) + " ago)";
  if (level.failing) text = styled(text + (level.step >= 0 ? " failing" : " none, failing"), kYellow, color);
  return text;
}

}  // namespace

std::string progress_line(const ProgressView& view, int width, bool utf8, bool color) {
  enum {
    kStep,
    kBar,
    kLoss,
    kEval,
    kSpeed,
    kWait,
    kLevels,
    kIncidents,
    kResumed,
    kLeft
  };  // from left to right
  struct Piece {
    int what, importance;
    std::string text, shorter;
  };
  std::vector<Piece> pieces;
  std::string step = "step " + std::to_string(view.step);
  if (view.steps > 0) step += "/" + std::to_string(view.steps);
  pieces.push_back({kStep, 100, styled(step, kBold, color), ""});
  if (view.steps > 0) pieces.push_back({kBar, 40, "", ""});
  if (view.step > 0 || !std::isnan(view.loss)) {
    bool bad = !std::isfinite(view.loss);
    std::string loss = "loss " + format_loss(view.loss);
    pieces.push_back({kLoss, 90, bad ? styled(loss, kRed, color) : loss, ""});
  }
  if (view.eval_loss) pieces.push_back({kEval, 30, "eval " + format_loss(*view.eval_loss), ""});
  if (std::isfinite(view.tokens_per_s))
    pieces.push_back({kSpeed, 80, format_quantity(view.tokens_per_s) + " tokens/s", ""});
  if (std::isfinite(view.data_wait)) {
    std::string wait = "data wait " + format_percent(view.data_wait);
    pieces.push_back({kWait, 50, view.data_wait > 0.1 ? styled(wait, kYellow, color) : wait, ""});
  }
  std::string levels, short_levels;
  for (const auto& level : view.levels) {
    levels += (levels.empty() ? "" : "  ") + level_text(level, true, color);
    short_levels += (short_levels.empty() ? "" : " ") + level_text(level, false, color);
  }
  if (!levels.empty()) pieces.push_back({kLevels, 60, levels, short_levels});
  if (view.incidents > 0)
    pieces.push_back({kIncidents, 35,
                      format_count(view.incidents) + (view.incidents == 1 ? " incident" : " incidents"), ""});
  if (view.repeating)
    pieces.push_back({kResumed, 32, styled("repeating lost steps", kYellow, color), ""});
  else if (view.resumed_from >= 0)
    pieces.push_back(
        {kResumed, 10, styled("resumed at " + std::to_string(view.resumed_from), kDim, color), ""});
  if (std::isfinite(view.left_s)) pieces.push_back({kLeft, 70, format_duration(view.left_s) + " left", ""});

  const std::string between = utf8 ? " · " : " | ";
  constexpr int kLeastBar = 10, kMostBar = 30;
  auto measure = [&] {
    int total = 0;
    bool first = true;
    for (const auto& piece : pieces) {
      // The bar stands between blanks, not between dots.
      if (piece.what == kBar)
        total += 1 + kLeastBar;
      else
        total += (first ? 0 : 3) + display_width(piece.text);
      first = false;
    }
    return total;
  };
  // Ages of the snapshots are given up first after the least important piece, then piece after piece.
  std::vector<Piece> removed;
  while (measure() > width && pieces.size() > 1) {
    auto least = std::min_element(pieces.begin(), pieces.end(),
                                  [](const Piece& a, const Piece& b) { return a.importance < b.importance; });
    auto ages = std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return !p.shorter.empty(); });
    if (ages != pieces.end() && least->importance > 20) {
      ages->text = std::move(ages->shorter);
      ages->shorter.clear();
    } else {
      removed.push_back(std::move(*least));
      pieces.erase(least);
    }
  }
  // A piece may fit after all into the room that a more important, longer one left.
  for (auto piece = removed.rbegin(); piece != removed.rend(); ++piece) {
    auto place =
        std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.what > piece->what; });
    size_t at = pieces.insert(place, *piece) - pieces.begin();
    if (measure() > width) pieces.erase(pieces.begin() + at);
  }
  int room = width - measure();
  std::string line;
  for (const auto& piece : pieces) {
    if (piece.what == kBar) {
      line += " " + bar(static_cast<double>(view.step) / static_cast<double>(view.steps),
                        std::min(kMostBar, kLeastBar + std::max(0, room)), utf8, color);
    } else {
      if (!line.empty()) line += between;
      line += piece.text;
    }
  }
  return line;
}

std::string progress_plain(const ProgressView& view, bool utf8) {
  const std::string between = utf8 ? " · " : " | ";
  std::string line = "step " + std::to_string(view.step);
  if (view.steps > 0)
    line += "/" + std::to_string(view.steps) + " (" +
            std::to_string(
                static_cast<int>(100.0 * static_cast<double>(view.step) / static_cast<double>(view.steps))) +
            " %)";
  if (view.step > 0 || !std::isnan(view.loss)) line += between + "loss " + format_loss(view.loss);
  if (view.eval_loss) line += between + "eval " + format_loss(*view.eval_loss);
  if (std::isfinite(view.tokens_per_s)) line += between + format_quantity(view.tokens_per_s) + " tokens/s";
  if (std::isfinite(view.data_wait)) line += between + "data wait " + format_percent(view.data_wait);
  std::string levels;
  for (const auto& level : view.levels)
    levels += (levels.empty() ? "" : ", ") + level_text(level, true, false);
  if (!levels.empty()) line += between + levels;
  if (view.incidents > 0)
    line += between + format_count(view.incidents) + (view.incidents == 1 ? " incident" : " incidents");
  if (view.repeating)
    line += between + "repeating lost steps";
  else if (view.resumed_from >= 0)
    line += between + "resumed at " + std::to_string(view.resumed_from);
  if (std::isfinite(view.left_s)) line += between + format_duration(view.left_s) + " left";
  return line;
}

Progress::Progress(ProgressOptions options, Terminal terminal)
    : options_(std::move(options)), terminal_(std::move(terminal)) {
  view_.steps = options_.steps;
  if (options_.resume) {
    const ResumeRecord& r = *options_.resume;
    log_info("resumed from level {} ({}) at step {} in {}{}", r.level, r.source, r.step,
             format_duration(r.recovery_s),
             r.lost_steps > 0 ? "; " + format_count(r.lost_steps) +
                                    (r.lost_steps == 1 ? " step is" : " steps are") + " done again"
                              : "");
    view_.resumed_from = r.step;
    view_.step = r.step;
  }
  if (terminal_.live) {
    line_ = std::make_shared<LiveLine>(STDERR_FILENO);
    logs_ = std::make_unique<LogsAboveLine>(line_);
  }
  last_draw_ = terminal_.live ? 0 : steady_seconds();
}

Progress::~Progress() {
  finish();
}

void Progress::step(const StepRecord& record) {
  std::lock_guard<std::mutex> lock(mutex_);
  double now = steady_seconds();
  recent_.push_back({now, record.step_s, static_cast<double>(record.tokens), record.data_wait_s});
  while (recent_.size() > 2 && now - recent_.front().at > kWindowSeconds) recent_.pop_front();
  view_.step = record.step;
  view_.loss = record.loss;
  view_.repeating = options_.resume && record.step <= options_.resume->step + options_.resume->lost_steps;
  dirty_ = true;
  draw(false);
}

void Progress::eval(const EvalRecord& record) {
  std::lock_guard<std::mutex> lock(mutex_);
  view_.eval_loss = record.loss;
  dirty_ = true;
  draw(false);
}

void Progress::snapshot(const SnapshotRecord& record) {
  if (record.level < 0 || record.level >= static_cast<int>(levels_.size())) return;
  std::lock_guard<std::mutex> lock(mutex_);
  LastSnapshot& last = levels_[record.level];
  last.seen = true;
  last.failing = !record.ok || record.degraded;
  if (record.ok) last.step = record.step, last.at = steady_seconds();
  dirty_ = true;
  draw(false);
}

void Progress::incident(const IncidentRecord&) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++view_.incidents;
  dirty_ = true;
}

ProgressView Progress::view() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return view_locked();
}

ProgressView Progress::view_locked() const {
  ProgressView view = view_;
  double seconds = 0, tokens = 0, wait = 0;
  for (const Recent& r : recent_) seconds += r.step_s, tokens += r.tokens, wait += r.data_wait_s;
  if (seconds > 0) {
    view.tokens_per_s = tokens / seconds;
    view.data_wait = wait / seconds;
  }
  if (view.steps > view.step && !recent_.empty()) {
    // Wall time between the first and the last of the window counts evaluation and pauses too.
    double per_step = seconds / static_cast<double>(recent_.size());
    if (recent_.size() > 2)
      per_step = std::max(per_step,
                          (recent_.back().at - recent_.front().at) / static_cast<double>(recent_.size() - 1));
    view.left_s = per_step * static_cast<double>(view.steps - view.step);
  }
  double now = steady_seconds();
  for (size_t level = 0; level < levels_.size(); ++level)
    if (levels_[level].seen)
      view.levels.push_back(
          {static_cast<int>(level), levels_[level].step, now - levels_[level].at, levels_[level].failing});
  return view;
}

// Called with the lock held.
void Progress::draw(bool now) {
  double time = steady_seconds();
  if (finished_ ||
      (!now && time - last_draw_ < (terminal_.live ? kRedrawSeconds : options_.plain_interval_s)))
    return;
  last_draw_ = time;
  dirty_ = false;
  ProgressView seen = view_locked();
  if (terminal_.live)
    // The last column stays free: some terminals wrap as soon as it is written.
    line_->show(progress_line(seen, terminal_.width() - 1, terminal_.utf8, terminal_.color));
  else
    log_info("{}", progress_plain(seen, terminal_.utf8));
}

void Progress::finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) return;
  if (dirty_) draw(true);
  finished_ = true;
  if (line_) line_->finish();
  logs_.reset();
}

}  // namespace mso
