// A curve of any length in bounded memory: equal runs of points, of each the lowest and the highest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mso {

struct CurvePoint {
  double x = 0, y = 0;
  int64_t step = 0;
  int segment = 0;  // a line is not drawn from one segment to the next
};

// Add points in the order of x. Once there are more runs than fit, neighbours are merged, so a million points
// cost what two thousand do. Points whose y is not finite are left out (count them elsewhere).
class Decimator {
 public:
  // points() gives at most `limit` (≥ 8).
  explicit Decimator(size_t limit = 2000);
  void add(const CurvePoint& point);
  // Lowest and highest of each run, and the very first and last, in order.
  std::vector<CurvePoint> points() const;
  // The mean of each run.
  std::vector<CurvePoint> means() const;
  uint64_t added() const { return added_; }

 private:
  struct Run {
    uint64_t count = 0, low_at = 0, high_at = 0;
    double sum_x = 0, sum_y = 0;
    CurvePoint low, high;
  };
  size_t most_runs_;
  uint64_t run_length_ = 1, added_ = 0;
  CurvePoint first_, last_;
  std::vector<Run> runs_;
};

// Local straight-line fit with Gaussian weights, within segments: no lag, and the ends of a slope are not
// bent. `width` is the standard deviation in points.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points, double width);

// Value below which the share q (0..1) of the values lies; the vector is reordered. NaN when empty.
double quantile(std::vector<float>& values, double q);

}  // namespace mso
