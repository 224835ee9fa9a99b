// All reading of shards: sources are watched and judged, hung reads left behind, the cache filled ahead and read from
// where a source is slow. The data set asks for bytes and gets them, or an Error within the deadlines.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/shard_cache.h"
#include "io/source.h"
#include "io/source_policy.h"

namespace mso {

struct StorageOptions {
  NvmeNames nvme;  // mdp.nvme
  // mdp.sources: "text", "image", "video", "audio" or "any" → folders (URLs) that hold the same shards, the first one
  // first. The folder of data.path is the last resort of all of them.
  std::map<std::string, std::vector<std::string>> sources;
  double latency_limit_s = 0.1;                        // mdp.latency_limit_ms
  double read_deadline_s = 10;                         // mdp.read_deadline_ms
  std::string cache_path;                              // mdp.cache.path; empty: no cache
  uint64_t cache_bytes = 0;                            // mdp.cache.max_bytes
  bool cache_always = true;                            // mdp.cache.fill: always; false: slow
  uint64_t read_ahead_bytes = uint64_t{256} << 20;     // mdp.read_ahead_bytes: in memory, while a source is slow
  int threads = 16;                                    // that read for decoders; as many again read ahead
  int most_left_behind = 64;                           // stuck threads of each kind that are replaced
  PolicyOptions policy;                                // its limit_s is overwritten by latency_limit_s
  std::function<std::shared_ptr<Source>(const std::string& url)> open;  // in the place of open_source(), for tests
};

// Errors (kBadUsage) of options that can be told without touching storage: unknown modalities, names of nvme:// sources
// that are not configured.
void check_storage_options(const StorageOptions& options);

// A shard as the index knows it.
struct ShardFacts {
  std::string folder_url, file;  // "nvme://fast/shards", "shard-000003.tar"
  uint64_t bytes = 0, fingerprint = 0, index_checksum = 0;
};

// A stretch of a shard that will be read.
struct ShardRange {
  uint32_t shard = 0;      // number that add_shard() gave
  uint8_t modality = 0;    // ModalityBit; 0: any
  uint64_t offset = 0, size = 0;
};

// Cumulative but for state and the percentiles, which are of the last seconds.
struct SourceStatus {
  std::string name;  // URL
  SourceState state = SourceState::kHealthy;
  uint64_t reads = 0, bytes = 0, errors = 0;
  uint64_t in_memory = 0;     // of the reads: served by the page cache without waiting
  uint64_t cached = 0;        // reads served by cache or read-ahead instead of this source
  uint64_t missed = 0;        // read from this source although it was to be spared: the cache did not have it
  uint64_t elsewhere = 0;     // late or failed here, then served by another path, the cache or a second try
  uint64_t given_up = 0;      // reads past their deadline
  double p50_s = 0, p99_s = 0;
};
struct StorageStatus {
  std::vector<SourceStatus> sources;
  CacheCounters cache;
  uint64_t cache_bytes = 0;
  std::string cache_trouble;
  uint64_t read_ahead = 0;    // stretches fetched ahead into memory
  uint64_t left_behind = 0;   // threads that were stuck, so far
  int stuck = 0;              // now
  int prefetch_factor = 1;
};

// A source's state changed, or the cache's trouble began or ended: for metrics.jsonl and people.
struct StorageEvent {
  double time = 0;  // Unix seconds
  std::string kind, message;  // "source_slow" | "source_hung" | "source_probing" | "source_healthy" | "cache_degraded" | "cache_recovered"
};

// Thread-safe.
class Storage {
 public:
  explicit Storage(StorageOptions options);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const StorageOptions& options() const;
  uint32_t add_shard(const ShardFacts& facts);

  // Error where no path, cache or read-ahead gives the bytes within the deadlines.
  std::vector<std::byte> read(const ShardRange& range);

  // What comes next: `upcoming` gives the stretches that step s will read here, in order; called from one thread of the
  // storage. at_step() tells which step is due. Without them nothing is fetched ahead.
  void follow(std::function<std::vector<ShardRange>(uint64_t step)> upcoming);
  void at_step(uint64_t step);

  // How many times the usual depth decoders should work ahead, as far as memory allows.
  int prefetch_factor() const;

  StorageStatus status() const;
  std::vector<StorageEvent> take_events();  // since the last call

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with threads that may be stuck when this goes
};

}  // namespace mso
