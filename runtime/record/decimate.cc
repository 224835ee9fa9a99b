#include "record/decimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mso {

Decimator::Decimator(size_t limit) : most_runs_(std::max<size_t>(limit / 2, 4) - 1) {}

void Decimator::add(const CurvePoint& point) {
  if (!std::isfinite(point.y) || !std::isfinite(point.x)) return;
  if (added_ == 0) first_ = point;
  last_ = point;
  if (runs_.empty() || runs_.back().count >= run_length_) {
    if (runs_.size() == most_runs_ - most_runs_ % 2 && runs_.size() >= 2) {
      for (size_t i = 0; i < runs_.size() / 2; ++i) {
        Run a = runs_[2 * i];
        const Run& b = runs_[2 * i + 1];
        if (b.low.y < a.low.y) a.low = b.low, a.low_at = b.low_at;
        if (b.high.y > a.high.y) a.high = b.high, a.high_at = b.high_at;
        a.count += b.count;
        a.sum_x += b.sum_x;
        a.sum_y += b.sum_y;
        runs_[i] = a;
      }
      runs_.resize(runs_.size() / 2);
      run_length_ *= 2;
    }
    if (runs_.empty() || runs_.back().count >= run_length_)
      runs_.push_back(Run{0, added_, added_, 0, 0, point, point});
  }
  Run& run = runs_.back();
  if (point.y < run.low.y) run.low = point, run.low_at = added_;
  if (point.y > run.high.y) run.high = point, run.high_at = added_;
  ++run.count;
  run.sum_x += point.x;
  run.sum_y += point.y;
  ++added_;
}

std::vector<CurvePoint> Decimator::points() const {
  std::vector<CurvePoint> out;
  if (added_ == 0) return out;
  for (const Run& run : runs_) {
    if (&run == &runs_.front() && run.low_at != 0 && run.high_at != 0) out.push_back(first_);
    if (run.low_at == run.high_at) {
      out.push_back(run.low);
    } else {
      out.push_back(run.low_at < run.high_at ? run.low : run.high);
      out.push_back(run.low_at < run.high_at ? run.high : run.low);
    }
    if (&run == &runs_.back() && run.low_at != added_ - 1 && run.high_at != added_ - 1) out.push_back(last_);
  }
  return out;
}

std::vector<CurvePoint> Decimator::means() const {
  std::vector<CurvePoint> out;
  out.reserve(runs_.size());
  for (const Run& run : runs_) {
    CurvePoint mean = run.low;
    mean.x = run.sum_x / static_cast<double>(run.count);
    mean.y = run.sum_y / static_cast<double>(run.count);
    if (run.count > 1) mean.step = (run.low.step + run.high.step) / 2;
    out.push_back(mean);
  }
  return out;
}

std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points, double width) {
  std::vector<CurvePoint> out = points;
  int reach = static_cast<int>(std::ceil(3 * width));
  if (reach < 1) return out;
  std::vector<double> weight(reach + 1);
  for (int k = 0; k <= reach; ++k) weight[k] = std::exp(-0.5 * k * k / (width * width));
  int n = static_cast<int>(points.size());
  for (int i = 0; i < n; ++i) {
    int used = 0;
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (int k = std::max(-reach, -i); k <= std::min(reach, n - 1 - i); ++k) {
      const CurvePoint& p = points[i + k];
      if (p.segment != points[i].segment) continue;
      double a = weight[std::abs(k)], x = p.x - points[i].x;
      ++used, w += a, wx += a * x, wy += a * p.y, wxx += a * x * x, wxy += a * x * p.y;
    }
    double spread = w * wxx - wx * wx;
    // A line through a handful of points would be noise; they get their mean.
    out[i].y = used >= 7 && spread > 1e-12 * w * wxx ? (wxx * wy - wx * wxy) / spread : wy / w;
  }
  return out;
}

double quantile(std::vector<float>& values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  size_t at = std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

}  // namespace mso
