// A source with its watch, policy and counters: every read is timed, and those that do not come back are seen.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/latency_watch.h"
#include "io/source.h"
#include "io/source_policy.h"
#include "io/storage.h"

namespace mso {

// Thread-safe.
class WatchedSource {
 public:
  WatchedSource(std::shared_ptr<Source> source, PolicyOptions policy, double deadline_s);

  Source& source() { return *source_; }
  SourceDecision decision() const;

  // Source::read, timed. Late reads are judged while they are under way.
  void read(const std::string& shard, uint64_t offset, std::span<std::byte> to);
  bool try_read(const std::string& shard, uint64_t offset, std::span<std::byte> to);

  // Lets the policy look at what happened; what changed, for log and metrics.
  std::optional<StorageEvent> judge(double now_s);

  enum Counter { kCached, kMissed, kElsewhere, kGivenUp, kCounters };
  void count(Counter counter) { ++counters_[counter]; }
  SourceStatus status(double now_s) const;
  // A place for a probe: somewhere in the shard that was read last, another one each time.
  bool probe_place(std::string* shard, uint64_t* offset);
  bool quiet() const;  // healthy, near, and nothing under way

  // Whether the file holds the shard that is expected, by `judge`, which is asked once per shard.
  bool fits(const std::string& shard, const std::function<bool()>& judge);
  std::optional<bool> known_to_fit(const std::string& shard) const;  // nothing: not asked yet

 private:
  const std::shared_ptr<Source> source_;
  const double deadline_s_;
  mutable std::mutex mutex_;
  mutable LatencyWatch watch_;
  SourcePolicy policy_;
  SourceDecision decision_;
  std::map<uint64_t, double> under_way_;  // number → begin
  uint64_t next_read_ = 0, reads_ = 0, bytes_ = 0, errors_ = 0, in_memory_ = 0, probes_ = 0;
  bool came_back_ = false;
  double last_read_s_ = -1e9, last_latency_s_ = 0;
  std::string last_shard_;
  uint64_t last_end_ = 0;
  std::map<std::string, bool> fitting_;
  std::atomic<uint64_t> counters_[kCounters] = {};
};

// Seconds of the steady clock.
double storage_clock();

}  // namespace mso
