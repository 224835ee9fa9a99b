// When a snapshot of a level is due: pure functions of plain numbers (seconds on any one clock).
#pragma once

namespace mso {

// What is known about one level's snapshots in this process.
struct LevelClock {
  double interval_s = 0;    // configured; 0: at every step boundary; negative: off
  double last_start_s = 0;  // when the last one started (or the process did)
  double last_write_s = 0;  // how long the last one took
  int failures = 0;         // in a row
  double retry_s = 5;       // first pause after a failure
};

// The configured interval, stretched to twice the time a write takes, so that a level writes half of the time
// at most.
double effective_interval(const LevelClock& clock);
// After `failures` (≥ 1) in a row: retry_s, twice that, four times … at most 5 minutes, never sooner than the
// level's interval.
double retry_delay(const LevelClock& clock);
// Whether one should start now. Nothing starts while the previous one is in flight.
bool is_due(const LevelClock& clock, double now_s, bool in_flight);

}  // namespace mso
