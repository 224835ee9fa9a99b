// A buddy allocator (Knowlton 1965) of offsets into one range of memory: blocks of powers of two with reference counts. It
// touches no memory itself; memory/batch_arena.h puts a range behind it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace mso {

// Which parts of a range are free: plain data that a planner may copy and try things on. Not thread-safe.
//
// A capacity that is no power of two is cut into roots, the largest first; a block is never larger than the root it
// lies in, and a block of size s lies at a multiple of s.
class BuddyMap {
 public:
  static constexpr uint64_t kSmallest = uint64_t{64} << 10;
  // The smallest block that holds `bytes`.
  static uint64_t block_size(uint64_t bytes);

  explicit BuddyMap(uint64_t capacity);  // rounded down to a multiple of kSmallest

  // A free block of block_size(bytes): the lowest of the smallest that are large enough. Nothing: none is.
  std::optional<uint64_t> take(uint64_t bytes);
  // The block of exactly this place and size (a power of two), if all of it is free.
  bool take_at(uint64_t offset, uint64_t size);
  // Makes a block free again, joined with its buddy as far as that is free. It must be one that was taken, of this size.
  void give(uint64_t offset, uint64_t size);

  uint64_t capacity() const { return capacity_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t free_blocks() const;
  uint64_t largest_free() const;  // 0: nothing is free
  uint64_t largest_root() const;  // no block can be larger
  // The share of free memory in blocks too small for `bytes`: 0, none of it is wasted, to 1, there is no room although
  // memory is free. Unusable free space index of Gorman and Whitcroft, "Measuring the impact of the Linux memory manager",
  // 2005. 0 where nothing is free.
  double unusable_share(uint64_t bytes) const;
  // Free blocks, by offset: {offset, size}.
  std::map<uint64_t, uint64_t> free_by_offset() const;

 private:
  static constexpr int kOrders = 48;
  static int order_of(uint64_t size);
  static uint64_t size_of(int order) { return kSmallest << order; }
  int root_order(uint64_t offset) const;

  uint64_t capacity_ = 0, free_bytes_ = 0;
  std::map<uint64_t, int> roots_;                // offset → order
  std::array<std::set<uint64_t>, kOrders> free_;  // offsets of free blocks, by order
};

struct BuddyStatistics {
  uint64_t capacity = 0;
  uint64_t blocks = 0, block_bytes = 0, requested_bytes = 0;  // in use: blocks, and what was asked for
  uint64_t free_bytes = 0, free_blocks = 0, largest_free = 0;
  uint64_t peak_block_bytes = 0;
  uint64_t allocations = 0, failures = 0, moves = 0;  // so far
  // Share of the blocks' memory that was not asked for, and share of free memory outside the largest free block.
  double internal_fragmentation() const {
    return block_bytes == 0 ? 0 : 1 - static_cast<double>(requested_bytes) / static_cast<double>(block_bytes);
  }
  double external_fragmentation() const {
    return free_bytes == 0 ? 0 : 1 - static_cast<double>(largest_free) / static_cast<double>(free_bytes);
  }
};

struct BuddyBlock {
  uint64_t offset = 0, size = 0, requested = 0;
  uint32_t references = 0;
  bool operator==(const BuddyBlock&) const = default;
};

// Thread-safe. An offset that is no block in use is an Error everywhere.
class BuddyAllocator {
 public:
  explicit BuddyAllocator(uint64_t capacity) : map_(capacity) {}

  // A block with one reference; nothing where none is large enough. 0 bytes take a smallest block.
  std::optional<uint64_t> allocate(uint64_t bytes);
  void retain(uint64_t offset);
  // Drops a reference; with the last one the block is free. Returns how many are left.
  uint32_t release(uint64_t offset);
  BuddyBlock block(uint64_t offset) const;

  // Gives a block another place, which must be free, with its references. Nothing is copied. False: there is no block at
  // `from` with exactly `references` references and this size, or the place is not free; nothing changed.
  bool move(uint64_t from, uint64_t to, uint64_t size, uint32_t references);

  BuddyStatistics statistics() const;
  double unusable_share(uint64_t bytes) const;
  uint64_t largest_root() const { return map_.largest_root(); }
  std::vector<BuddyBlock> blocks() const;  // in use, by offset
  BuddyMap map() const;                    // a copy

 private:
  mutable std::mutex mutex_;
  BuddyMap map_;
  std::map<uint64_t, BuddyBlock> used_;
  BuddyStatistics totals_;  // the parts that are counted as they change
};

}  // namespace mso
