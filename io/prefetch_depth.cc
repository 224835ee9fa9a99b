#include "io/prefetch_depth.h"

#include <algorithm>

namespace mso {

PrefetchBounds prefetch_bounds(uint64_t configured, uint64_t per_step) {
  PrefetchBounds bounds;
  bounds.least = std::max({uint64_t{1}, configured, 2 * per_step});
  bounds.most = 8 * bounds.least;
  return bounds;
}

void BufferDepth::set_bounds(PrefetchBounds bounds) {
  bounds_ = bounds;
  depth_ = std::clamp(depth_, bounds_.least, bounds_.most);
}

void BufferDepth::observe(const PrefetchSample& sample) {
  if (sample.waited) {
    depth_ = std::min(2 * depth_, bounds_.most);
    calm_ = 0;
    return;
  }
  calm_ = sample.ready > depth_ / 2 ? calm_ + 1 : 0;
  if (calm_ < kCalmSteps) return;
  calm_ = 0;
  const uint64_t less = std::max<uint64_t>(1, sample.per_step);
  depth_ = depth_ > bounds_.least + less ? depth_ - less : bounds_.least;
}

}  // namespace mso
