#include "io/latency_watch.h"

#include <algorithm>
#include <cmath>

namespace mso {

void LatencyWatch::add(double now_s, double latency_s) {
  reads_.push_back({now_s, latency_s});
  if (reads_.size() > most_) reads_.pop_front();
}

LatencySummary LatencyWatch::summary(double now_s, double limit_s) {
  while (!reads_.empty() && reads_.front().time_s <= now_s - window_s_) reads_.pop_front();
  LatencySummary summary;
  summary.reads = reads_.size();
  if (reads_.empty()) return summary;
  sorted_.clear();
  for (const Read& read : reads_) {
    sorted_.push_back(read.latency_s);
    summary.over += read.latency_s > limit_s;
  }
  auto at = [&](double share) {  // nearest rank
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted_.size()) - 1e-9));
    const auto place = sorted_.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
    std::nth_element(sorted_.begin(), place, sorted_.end());
    return *place;
  };
  summary.p50_s = at(0.5);
  summary.p99_s = at(0.99);
  return summary;
}

}  // namespace mso
