#include "io/source_policy.h"

#include <algorithm>

namespace mso {

const char* to_string(SourceState state) {
  switch (state) {
    case SourceState::kHealthy: return "healthy";
    case SourceState::kSlow: return "slow";
    case SourceState::kHung: return "hung";
    case SourceState::kProbing: return "probing";
  }
  return "";
}

void SourcePolicy::enter(SourceState state, double now_s) {
  state_ = state;
  since_s_ = now_s;
  bad_since_s_ = -1;
}

SourceDecision SourcePolicy::update(const SourceObservation& seen) {
  const PolicyOptions& o = options_;
  const SourceState before = state_;
  const double in_state_s = seen.now_s - since_s_;
  const bool judged = seen.window.reads >= o.min_reads;
  const bool late = seen.oldest_under_way_s > std::max(o.late_s, o.limit_s);
  const bool bad = late || (judged && seen.window.over >= o.min_over && seen.window.p99_s > o.limit_s);
  const bool good = judged && !late && seen.window.p99_s < o.limit_s * o.recover_ratio;
  if (!bad)
    bad_since_s_ = -1;
  else if (bad_since_s_ < 0)
    bad_since_s_ = seen.now_s;

  if (seen.passed_deadline && !seen.came_back) {
    if (state_ == SourceState::kProbing) slow_s_ = std::min(2 * slow_s_, o.slow_at_most_s);
    if (state_ != SourceState::kHung) enter(SourceState::kHung, seen.now_s);
  } else {
    switch (state_) {
      case SourceState::kHealthy:
        // A late read has been waited for long enough by itself.
        if (late || (bad && seen.now_s - bad_since_s_ >= o.confirm_s)) {
          slow_s_ = in_state_s > o.calm_s ? o.slow_at_least_s : std::min(2 * slow_s_, o.slow_at_most_s);
          enter(SourceState::kSlow, seen.now_s);
        }
        break;
      case SourceState::kHung:
        if (seen.came_back) enter(SourceState::kSlow, seen.now_s);
        break;
      case SourceState::kSlow:
        if (good && in_state_s >= slow_s_) enter(SourceState::kProbing, seen.now_s);
        break;
      case SourceState::kProbing:
        if (bad) {
          slow_s_ = std::min(2 * slow_s_, o.slow_at_most_s);
          enter(SourceState::kSlow, seen.now_s);
        } else if (good && in_state_s >= o.probing_s) {
          enter(SourceState::kHealthy, seen.now_s);
        }
        break;
    }
  }

  if (judged && seen.window.p50_s > o.far_s) far_ = true;
  if (judged && seen.window.p50_s < o.far_s / 2) far_ = false;

  SourceDecision decision;
  decision.state = state_;
  decision.changed = state_ != before;
  decision.far = far_;
  // A full window of fast reads outweighs the first slow ones for seconds; meanwhile nobody should wait for those that the
  // cache can spare.
  decision.suspect = seen.oldest_under_way_s > o.limit_s ||
                     (seen.last_latency_s > o.limit_s && seen.now_s - seen.last_read_s < o.suspect_s);
  decision.avoid = state_ == SourceState::kSlow || state_ == SourceState::kHung;
  decision.cache_first = decision.avoid || decision.suspect || decision.far;
  decision.fill_ahead = state_ == SourceState::kSlow;
  decision.prefetch_factor = state_ == SourceState::kHealthy ? 1 : 4;
  if ((state_ != SourceState::kHealthy || decision.cache_first) && seen.now_s - std::max(seen.last_read_s, last_probe_s_) >= o.probe_interval_s) {
    decision.probe = true;
    last_probe_s_ = seen.now_s;
  }
  return decision;
}

}  // namespace mso
