// What to do about a source of the speed it shows: a state machine with hysteresis that only decides; io/storage.h acts.
//
//            p99 above the limit for confirm_s                 good window, at least slow_at_least_s later
//   healthy ───────────────────────────────────▶ slow ───────────────────────────────────▶ probing
//      ▲  └── a read passed its deadline ──▶ hung ─┘ ▲  (a read came back)                     │ │
//      │                                             └──────── slow again: stays twice as long ┘ │
//      └────────────────────────────── good for probing_s ──────────────────────────────────────┘
#pragma once

#include "io/latency_watch.h"

namespace mso {

enum class SourceState { kHealthy, kSlow, kHung, kProbing };
const char* to_string(SourceState state);

struct PolicyOptions {
  double limit_s = 0.1;          // p99 above it is slow
  double recover_ratio = 0.5;    // p99 below limit_s times this is good: in between nothing changes
  size_t min_reads = 4;          // of a window that is judged at all
  size_t min_over = 2;           // one slow read is an accident
  double confirm_s = 1;          // how long a window must be bad
  double slow_at_least_s = 5;    // in slow; doubled each time it was left too early, up to slow_at_most_s
  double slow_at_most_s = 30;
  double probing_s = 3;
  double calm_s = 60;            // healthy for so long: leaving slow was right
  double probe_interval_s = 0.5; // between reads whose only purpose is to measure, where nothing else reads
  double late_s = 1;             // a read under way for longer shows a slow source before it ends
  double suspect_s = 1;          // after a read above limit_s: what is cached is not asked of the source for so long
  double far_s = 0.002;          // median of a source far enough that reading ahead pays even though it is healthy
};

struct SourceObservation {
  double now_s = 0;
  LatencySummary window;         // with limit_s of the options
  double oldest_under_way_s = 0; // age of the oldest read that has not come back
  bool passed_deadline = false;  // a read was given up since the last observation
  bool came_back = false;        // a read ended well since the last observation
  double last_read_s = -1e9;     // when a read ended last, for probes
  double last_latency_s = 0;     // how long that one took
};

struct SourceDecision {
  SourceState state = SourceState::kHealthy;
  bool changed = false;          // by this observation
  bool cache_first = false;      // what the cache has is not read from the source
  bool fill_ahead = false;       // fetch what comes next into cache or memory, many at a time
  int prefetch_factor = 1;       // times the prefetch depth, as far as memory allows
  bool avoid = false;            // another path is better than this one
  bool probe = false;            // read something small now, to see how fast it comes
  bool suspect = false;          // one read is or was just now above the limit; as cache_first, before anything is confirmed
  bool far = false;              // healthy, but each read costs milliseconds: have them made ahead, and look into the cache first
};

class SourcePolicy {
 public:
  explicit SourcePolicy(PolicyOptions options = {}) : options_(options), slow_s_(options.slow_at_least_s) {}

  // Times must not run backwards.
  SourceDecision update(const SourceObservation& seen);
  SourceState state() const { return state_; }
  const PolicyOptions& options() const { return options_; }

 private:
  void enter(SourceState state, double now_s);

  PolicyOptions options_;
  SourceState state_ = SourceState::kHealthy;
  double since_s_ = -1e9;     // in this state
  double bad_since_s_ = -1;   // window above the limit; -1: it is not
  double slow_s_;             // how long slow lasts at least, this time
  double last_probe_s_ = -1e9;
  bool far_ = false;
};

}  // namespace mso
