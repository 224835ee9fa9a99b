#include "ckpt/snapshot_policy.h"

#include <algorithm>
#include <cmath>

namespace mso {

double effective_interval(const LevelClock& clock) {
  // At every step boundary means just that: the fence's wait, not this, bounds what it costs.
  if (clock.interval_s == 0) return 0;
  return std::max(clock.interval_s, 2 * clock.last_write_s);
}

double retry_delay(const LevelClock& clock) {
  const double back_off = std::min(clock.retry_s * std::ldexp(1.0, std::min(clock.failures, 16) - 1), 300.0);
  return std::max(back_off, effective_interval(clock));
}

bool is_due(const LevelClock& clock, double now_s, bool in_flight) {
  if (clock.interval_s < 0 || in_flight) return false;
  const double wait = clock.failures > 0 ? retry_delay(clock) : effective_interval(clock);
  return now_s - clock.last_start_s >= wait;
}

}  // namespace mso
