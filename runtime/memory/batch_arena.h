// The memory that batches lie in: one range behind a buddy allocator, divided by shares, compacted at step boundaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/host_bytes.h"
#include "memory/buddy_allocator.h"
#include "memory/modality_shares.h"

namespace mso {

struct BatchMemoryUse {
  BuddyStatistics blocks;
  std::vector<MemoryShareUse> parts;
  std::vector<double> fragmentation;             // of each part, at the last step boundary
  uint64_t overflows = 0, overflow_bytes = 0;    // requests the range had no room for, so far: they are on the heap
  uint64_t compactions = 0, compacted_bytes = 0;  // so far
};

// Thread-safe. Blocks keep the arena alive.
class BatchArena : public std::enable_shared_from_this<BatchArena> {
 public:
  // Address space of `capacity` bytes; memory is taken as blocks are first written. Error (kBadUsage) for shares that do not
  // fit, Error where the system gives not even a smaller range.
  static std::shared_ptr<BatchArena> make(uint64_t capacity, const std::vector<MemoryShare>& shares);
  ~BatchArena();
  BatchArena(const BatchArena&) = delete;

  // Undefined bytes, held, charged to a part by its place in the shares. From the heap where the range has no room: a
  // batch is never refused.
  HostBytes allocate(size_t size, size_t part);

  // A part's fragmentation is the share of free memory that is useless for its largest request of the last steps
  // (BuddyMap::unusable_share). Where it is above the part's tolerance, parked blocks are moved. Called between two
  // steps; other threads may go on allocating, and wait for as long as at most kMostMoved bytes are copied.
  void step_boundary();
  static constexpr uint64_t kMostMoved = uint64_t{64} << 20;

  BatchMemoryUse use() const;

 private:
  class Block;
  struct Wish {  // a part's largest request
    uint64_t now = 0, before = 0;
    uint64_t largest() const { return now > before ? now : before; }
  };
  BatchArena(std::byte* memory, uint64_t reserved, uint64_t capacity, const std::vector<MemoryShare>& shares);
  void compact(uint64_t wanted, double tolerance);

  std::byte* const memory_;
  const uint64_t reserved_;
  const std::vector<MemoryShare> rules_;
  mutable std::mutex mutex_;  // of all below and of the blocks' places
  BuddyAllocator allocator_;
  ModalityShares shares_;
  std::unordered_map<uint64_t, Block*> parked_;  // by offset
  std::vector<Wish> wishes_;
  std::vector<double> fragmentation_;
  uint64_t overflows_ = 0, overflow_bytes_ = 0, compactions_ = 0, compacted_bytes_ = 0;
};

}  // namespace mso
