// Read latencies of a source over the last few seconds: how many, how many above a limit, median and 99th percentile.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace mso {

struct LatencySummary {
  size_t reads = 0;
  size_t over = 0;                // above the limit
  double p50_s = 0, p99_s = 0;    // the smallest latency that at least this share of the reads does not pass; 0: no read
};

// A function of what is added, with times in seconds of any one clock that does not run backwards. Not thread-safe.
class LatencyWatch {
 public:
  // Of more reads than `most` in the window the oldest are forgotten.
  explicit LatencyWatch(double window_s = 5, size_t most = 4096) : window_s_(window_s), most_(most) {}

  void add(double now_s, double latency_s);
  LatencySummary summary(double now_s, double limit_s);
  void clear() { reads_.clear(); }

 private:
  struct Read {
    double time_s, latency_s;
  };
  const double window_s_;
  const size_t most_;
  std::deque<Read> reads_;
  std::vector<double> sorted_;  // kept for its memory
};

}  // namespace mso
