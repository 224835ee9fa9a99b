#include "io/watched_source.h"

#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"

namespace mso {

double storage_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

WatchedSource::WatchedSource(std::shared_ptr<Source> source, PolicyOptions policy, double deadline_s)
    : source_(std::move(source)), deadline_s_(deadline_s), policy_(policy) {}

SourceDecision WatchedSource::decision() const {
  std::lock_guard lock(mutex_);
  return decision_;
}

bool WatchedSource::try_read(const std::string& shard, uint64_t offset, std::span<std::byte> to) {
  if (!source_->try_read(shard, offset, to)) return false;
  // Says nothing of the source's speed, so it is not watched.
  std::lock_guard lock(mutex_);
  ++reads_;
  ++in_memory_;
  bytes_ += to.size();
  return true;
}

void WatchedSource::read(const std::string& shard, uint64_t offset, std::span<std::byte> to) {
  const double begin = storage_clock();
  uint64_t number;
  {
    std::lock_guard lock(mutex_);
    number = next_read_++;
    under_way_.emplace(number, begin);
    last_shard_ = shard;
    last_end_ = std::max(last_end_, offset + to.size());
  }
  bool good = false;
  auto ended = [&] {
    const double now = storage_clock();
    std::lock_guard lock(mutex_);
    const bool in_time = under_way_.erase(number) > 0;
    last_read_s_ = now;
    last_latency_s_ = good ? now - begin : 0;
    if (good) {
      ++reads_;
      bytes_ += to.size();
      came_back_ = true;
      if (in_time) watch_.add(now, now - begin);  // what was written off long ago says nothing of today
    } else {
      ++errors_;
    }
  };
  try {
    source_->read(shard, offset, to);
    good = true;
  } catch (...) {
    ended();
    throw;
  }
  ended();
}

std::optional<StorageEvent> WatchedSource::judge(double now_s) {
  SourceDecision decision;
  LatencySummary window;
  double oldest_s = 0;
  {
    std::lock_guard lock(mutex_);
    SourceObservation seen;
    seen.now_s = now_s;
    while (!under_way_.empty() && now_s - under_way_.begin()->second >= deadline_s_) {
      under_way_.erase(under_way_.begin());
      seen.passed_deadline = true;
      ++counters_[kGivenUp];
    }
    seen.oldest_under_way_s = oldest_s = under_way_.empty() ? 0 : now_s - under_way_.begin()->second;
    seen.came_back = came_back_;
    came_back_ = false;
    seen.last_read_s = last_read_s_;
    seen.last_latency_s = last_latency_s_;
    seen.window = window = watch_.summary(now_s, policy_.options().limit_s);
    decision = decision_ = policy_.update(seen);
  }
  if (!decision.changed) return {};
  char text[160];
  std::snprintf(text, sizeof text, "p99 %.0f ms, median %.0f ms of %zu reads (limit %.0f ms)", 1e3 * window.p99_s,
                1e3 * window.p50_s, window.reads, 1e3 * policy_.options().limit_s);
  StorageEvent event;
  event.kind = std::string("source_") + to_string(decision.state);
  event.message = source_->name();
  switch (decision.state) {
    case SourceState::kHealthy: event.message += " is healthy again: "; break;
    case SourceState::kSlow: event.message += " is slow; read ahead, and from the cache first: "; break;
    case SourceState::kProbing: event.message += " seems to have recovered; read from again: "; break;
    case SourceState::kHung:
      event.message += " hangs: a read did not come back within " + std::to_string(static_cast<int>(deadline_s_ * 1e3)) + " ms; ";
      break;
  }
  event.message += text;
  if (oldest_s > policy_.options().limit_s) {
    std::snprintf(text, sizeof text, ", one under way for %.0f ms", 1e3 * oldest_s);
    event.message += text;
  }
  if (decision.state == SourceState::kHealthy || decision.state == SourceState::kProbing)
    log_info("{}", event.message);
  else
    log_warn("{}", event.message);
  return event;
}

SourceStatus WatchedSource::status(double now_s) const {
  std::lock_guard lock(mutex_);
  SourceStatus status;
  status.name = source_->name();
  status.state = policy_.state();
  status.reads = reads_;
  status.bytes = bytes_;
  status.errors = errors_;
  status.in_memory = in_memory_;
  status.cached = counters_[kCached];
  status.missed = counters_[kMissed];
  status.elsewhere = counters_[kElsewhere];
  status.given_up = counters_[kGivenUp];
  const LatencySummary window = watch_.summary(now_s, policy_.options().limit_s);
  status.p50_s = window.p50_s;
  status.p99_s = window.p99_s;
  return status;
}

bool WatchedSource::probe_place(std::string* shard, uint64_t* offset) {
  std::lock_guard lock(mutex_);
  if (last_shard_.empty() || last_end_ < 4096) return false;
  *shard = last_shard_;
  // Far from the last one, so that no page cache answers for the storage.
  *offset = (++probes_ * 7919 * 4096) % (last_end_ - 4095);
  return true;
}

bool WatchedSource::quiet() const {
  std::lock_guard lock(mutex_);
  return policy_.state() == SourceState::kHealthy && !decision_.cache_first && under_way_.empty() && !came_back_;
}

bool WatchedSource::fits(const std::string& shard, const std::function<bool()>& judge) {
  {
    std::lock_guard lock(mutex_);
    if (const auto at = fitting_.find(shard); at != fitting_.end()) return at->second;
  }
  const bool fits = judge();
  std::lock_guard lock(mutex_);
  return fitting_.emplace(shard, fits).first->second;
}

std::optional<bool> WatchedSource::known_to_fit(const std::string& shard) const {
  std::lock_guard lock(mutex_);
  const auto at = fitting_.find(shard);
  return at == fitting_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace mso
