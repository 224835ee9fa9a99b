// Fetches what will be read next before it is asked for: aligned chunks into the cache, or, without one, the very
// stretches into memory. Decides what and in which order; the threads and the sources are the storage's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "io/io_pool.h"
#include "io/shard_cache.h"
#include "io/storage.h"

namespace mso {

// A shard as read-ahead sees it.
struct AheadShard {
  uint64_t cache_id = 0;  // what it is called in the cache
  uint64_t bytes = 0;
};

// Held by shared_ptr, for stuck threads keep it. Thread-safe; pump() is called from one thread.
class ReadAhead : public std::enable_shared_from_this<ReadAhead> {
 public:
  using Clock = std::chrono::steady_clock;
  struct Work {
    std::function<AheadShard(uint32_t shard)> shard;
    // Reads from whatever path answers; blocks; throws Error. Called on the threads of the pool.
    std::function<void(const ShardRange& range, std::span<std::byte> to)> fetch;
    std::function<void()> ended;  // a piece has come or failed: pump() may start another
  };

  // `cache` may be null.
  ReadAhead(std::shared_ptr<ShardCache> cache, double deadline_s, Work work);

  void follow(std::function<std::vector<ShardRange>(uint64_t step)> upcoming);
  void at_step(uint64_t step);

  // The bytes where the cache has them, or read-ahead has; waits until `until` for a piece that is on its way. What is
  // missing is then fetched before anything else.
  bool take(const ShardRange& range, std::span<std::byte> to, Clock::time_point until);
  // A stretch that was read by other means: need not be fetched into memory, but its chunk into the cache.
  void was_read(const ShardRange& range);

  // take() would succeed now. (The cache may still find a chunk damaged.)
  bool has(const ShardRange& range) const;

  // Starts fetching until `at_a_time` pieces are on their way, or `memory_bytes` wait in memory; gives up those that do not
  // come back.
  void pump(IoPool& pool, int at_a_time, uint64_t memory_bytes);
  bool busy() const;  // pieces are on their way
  bool follows() const;
  uint64_t fetched() const;

 private:
  struct Piece {
    ShardRange range;
    uint64_t step = 0;
    bool done = false, failed = false;  // changed under the lock
    bool threw = false;                 // by the thread that fetches, before either
    Clock::time_point begin;
    std::vector<std::byte> bytes;  // empty: in the cache
    std::shared_ptr<IoPool::Job> job;
  };
  using Key = std::pair<uint32_t, uint64_t>;  // shard, offset
  bool take_chunk(const ShardRange& part, std::span<std::byte> to, Clock::time_point until);
  bool plan_more(uint64_t memory_bytes);  // false: nothing more to do at present
  void queue_pieces(uint64_t step, const std::vector<ShardRange>& ranges);
  static void fetch(Piece& piece, ShardCache* cache, const Work& work);
  void came(const std::shared_ptr<Piece>& piece);

  const std::shared_ptr<ShardCache> cache_;
  const double deadline_s_;
  const std::shared_ptr<const Work> work_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<std::vector<ShardRange>(uint64_t)> upcoming_;
  uint64_t due_step_ = 0, next_step_ = 0;
  std::deque<std::shared_ptr<Piece>> queue_;
  std::set<Key> queued_;                              // chunks in queue_
  std::map<Key, std::shared_ptr<Piece>> pieces_;      // on their way, or in memory
  std::deque<std::pair<uint64_t, uint64_t>> ahead_;   // of steps planned: step, bytes
  uint64_t ahead_bytes_ = 0, in_memory_ = 0;
  std::map<Key, uint64_t> read_;                      // lately, by other means: the step that was due then
  std::deque<Key> read_order_;
  int under_way_ = 0;
  uint64_t fetched_ = 0;
};

}  // namespace mso
