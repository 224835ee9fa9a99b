// A cache of shards on a local disk, shared by the processes of a node: aligned stretches of shards in files of their own,
// checksummed, bounded in size, least recently used ones evicted. No trouble with its disk is an error for anybody.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "base/file.h"

namespace mso {

struct CacheCounters {
  uint64_t hits = 0, misses = 0, fills = 0, damaged = 0, evicted = 0, failed_writes = 0;
};

// Thread-safe. A crash or power loss leaves at most files that are noticed as damaged and fetched again.
//   <folder>/mso-cache-1/state, evict.lock, write.lock       bytes in use by all processes; who evicts; who writes
//   <folder>/mso-cache-1/<16 digits of the shard>/lock, <chunk>   see the layout of a chunk in shard_cache.cc
class ShardCache {
 public:
  static constexpr uint64_t kChunk = uint64_t{1} << 20;  // bytes of a shard in one file

  // `max_bytes` counts for all processes together. Where the folder cannot be used, trouble() says why and nothing is
  // ever found.
  ShardCache(std::filesystem::path folder, uint64_t max_bytes);
  ~ShardCache();
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;

  // Bytes [offset, offset + to.size()) of a chunk. False: not there, or damaged and thrown away now.
  bool read(uint64_t shard, uint64_t chunk, uint64_t offset, std::span<std::byte> to);
  bool contains(uint64_t shard, uint64_t chunk) const;
  // Replaces the chunk. False where the disk does not take it; it is tried again after a while.
  bool write(uint64_t shard, uint64_t chunk, std::span<const std::byte> content);

  // Held by the one process that fetches a chunk. Not valid() where another one still has it at the deadline, or the
  // disk has no locks: fetch without.
  class FillLock {
   public:
    bool valid() const { return fd_.valid(); }

   private:
    friend class ShardCache;
    FileDescriptor fd_;
  };
  FillLock lock(uint64_t shard, uint64_t chunk, std::chrono::steady_clock::time_point deadline);

  // Why nothing is written at present ("No space left on device …"); empty: all is well.
  std::string trouble() const;
  uint64_t bytes() const;  // in use by all processes
  uint64_t max_bytes() const { return max_bytes_; }
  CacheCounters counters() const;

 private:
  struct State;
  std::filesystem::path file(uint64_t shard, uint64_t chunk) const;
  std::filesystem::path temporary(const std::filesystem::path& path);  // a new name beside it
  bool make_room(uint64_t bytes);
  void note_trouble(const std::string& what);

  const std::filesystem::path folder_;
  const uint64_t max_bytes_;
  State* state_ = nullptr;  // shared by all processes
  mutable std::mutex mutex_;
  std::string trouble_;
  std::chrono::steady_clock::time_point next_write_{};
  std::unordered_map<uint64_t, std::chrono::steady_clock::time_point> touched_;
  CacheCounters counters_;
  std::atomic<uint64_t> next_temporary_ = 0;
};

}  // namespace mso
