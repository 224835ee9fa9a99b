#include "record/time_axis.h"

#include <algorithm>
#include <cmath>

#include "record/format.h"

namespace mso {

TimeAxis::TimeAxis(const std::vector<std::pair<double, double>>& spans, double left, double right) {
  double running = 0;
  for (const auto& [begin, end] : spans) running += end - begin;
  // Spans and gaps in order; short gaps are drawn as long as they were.
  double shown = 0;
  int folds = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i > 0) {
      double gap = spans[i].first - spans[i - 1].second;
      bool fold = gap > std::max(0.02 * running, 1.0);
      if (gap > 0) pieces_.push_back({spans[i - 1].second, spans[i].first, 0, 0, fold});
      folds += fold && gap > 0;
      if (!fold) shown += std::max(gap, 0.0);
    }
    if (spans[i].second > spans[i].first) {
      pieces_.push_back({spans[i].first, spans[i].second, 0, 0, false});
      shown += spans[i].second - spans[i].first;
    }
  }
  if (pieces_.empty()) {
    double at = spans.empty() ? 0 : spans[0].first;
    pieces_.push_back({at, at + 1, 0, 0, false});
    shown = 1;
  }
  double fold_width = folds ? std::min(0.025, 0.2 / folds) * (right - left) : 0;
  double scale = shown > 0 ? (right - left - folds * fold_width) / shown : 0;
  double x = left;
  for (Piece& piece : pieces_) {
    piece.x0 = x;
    x += piece.folded ? fold_width : (piece.t1 - piece.t0) * scale;
    piece.x1 = x;
    if (piece.folded) breaks_.push_back({piece.x0, piece.x1, piece.t1 - piece.t0});
  }
}

double TimeAxis::x(double time) const {
  if (!(time > pieces_.front().t0)) return pieces_.front().x0;
  auto piece = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return time <= p.t1; });
  if (piece == pieces_.end()) return pieces_.back().x1;
  if (time <= piece->t0) return piece->x0;
  return piece->x0 + (piece->x1 - piece->x0) * (time - piece->t0) / (piece->t1 - piece->t0);
}

std::vector<TimeAxis::Tick> TimeAxis::ticks(double apart) const {
  static constexpr double kSteps[] = {
      0.1,  0.2,  0.5,  1,     2,     5,     10,    15,     30,     60,     120,     300,     600,     900,
      1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000, 8640000, 31536000};
  // Seconds per pixel of what is drawn to scale.
  double seconds = 0, width = 0;
  for (const Piece& piece : pieces_)
    if (!piece.folded) seconds += piece.t1 - piece.t0, width += piece.x1 - piece.x0;
  double wanted = width > 0 ? apart * seconds / width : 1;
  double step =
      *std::find_if(std::begin(kSteps), std::end(kSteps) - 1, [&](double s) { return s >= wanted; });
  std::vector<Tick> ticks;
  double zero = pieces_.front().t0;
  for (const Piece& piece : pieces_) {
    if (piece.folded) continue;
    for (double k = std::ceil((piece.t0 - zero) / step); zero + k * step <= piece.t1; ++k) {
      double at = x(zero + k * step);
      if (!ticks.empty() && at - ticks.back().x < apart * 0.9) continue;
      double value = k * step;
      ticks.push_back({at, value == 0                ? "0"
                           : value < 60 && step >= 1 ? format_count(std::llround(value)) + " s"
                                                     : format_duration(value)});
    }
  }
  return ticks;
}

std::vector<double> round_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(high - low) || count < 1) return {low};
  double rough = (high - low) / count;
  double power = std::pow(10, std::floor(std::log10(rough)));
  double unit = rough / power;
  double step = power * (unit < 1.5 ? 1 : unit < 3 ? 2 : unit < 7 ? 5 : 10);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && ticks.size() < 100; ++k)
    ticks.push_back(k * step == 0 ? 0 : k * step);
  return ticks;
}

}  // namespace mso
