#include "memory/batch_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "base/error.h"
#include "memory/compaction.h"

namespace mso {

// A block in use has one reference for being there and one more while it is held, so that compaction finds those
// nobody holds by their count.
class BatchArena::Block final : public HostBlock {
 public:
  Block(std::shared_ptr<BatchArena> arena, uint64_t offset, uint64_t size, size_t part)
      : arena_(std::move(arena)), offset_(offset), size_(size), part_(part), address_(arena_->memory_ + offset) {}

  ~Block() override {
    std::lock_guard lock(arena_->mutex_);
    if (address_.load(std::memory_order_relaxed) == nullptr)
      arena_->parked_.erase(offset_);
    else
      arena_->allocator_.release(offset_);
    arena_->allocator_.release(offset_);
    arena_->shares_.give(part_, size_);
  }

  std::byte* hold() override {
    if (std::byte* address = address_.load(std::memory_order_acquire)) return address;
    std::lock_guard lock(arena_->mutex_);
    if (address_.load(std::memory_order_relaxed) == nullptr) {
      arena_->allocator_.retain(offset_);
      arena_->parked_.erase(offset_);
      address_.store(arena_->memory_ + offset_, std::memory_order_release);
    }
    return address_.load(std::memory_order_relaxed);
  }

  void park() override {
    std::lock_guard lock(arena_->mutex_);
    if (address_.load(std::memory_order_relaxed) == nullptr) return;
    arena_->allocator_.release(offset_);
    arena_->parked_[offset_] = this;
    address_.store(nullptr, std::memory_order_release);
  }

  // With the arena's lock held.
  void moved(uint64_t offset) { offset_ = offset; }

 private:
  const std::shared_ptr<BatchArena> arena_;
  uint64_t offset_;
  const uint64_t size_;
  const size_t part_;
  std::atomic<std::byte*> address_;  // null: parked
};

BatchArena::BatchArena(std::byte* memory, uint64_t reserved, uint64_t capacity, const std::vector<MemoryShare>& shares)
    : memory_(memory), reserved_(reserved), rules_(shares), allocator_(capacity), shares_(capacity, shares),
      wishes_(shares.size()), fragmentation_(shares.size()) {}

BatchArena::~BatchArena() { ::munmap(memory_, reserved_); }

std::shared_ptr<BatchArena> BatchArena::make(uint64_t capacity, const std::vector<MemoryShare>& shares) {
  (void)ModalityShares(capacity, shares);  // refuses before memory is asked for
  capacity = std::max(capacity, BuddyMap::kSmallest) / BuddyMap::kSmallest * BuddyMap::kSmallest;
  // Half of it is better than nothing where address space is limited.
  for (uint64_t tried = capacity; tried >= BuddyMap::kSmallest; tried = tried / 2 / BuddyMap::kSmallest * BuddyMap::kSmallest) {
    void* memory = ::mmap(nullptr, tried, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED)
      return std::shared_ptr<BatchArena>(new BatchArena(static_cast<std::byte*>(memory), tried, tried, shares));
  }
  throw Error("out of memory", std::to_string(capacity) + " bytes of address space for batches",
              "is there a limit of address space (ulimit -v)?");
}

HostBytes BatchArena::allocate(size_t size, size_t part) {
  if (size == 0) return {};
  {
    std::lock_guard lock(mutex_);
    Wish& wish = wishes_.at(part);
    wish.now = std::max<uint64_t>(wish.now, size);
    const uint64_t block = size <= allocator_.largest_root() ? BuddyMap::block_size(size) : size;
    if (shares_.take(part, block)) {
      if (const auto offset = allocator_.allocate(size)) {
        allocator_.retain(*offset);
        return HostBytes(std::make_unique<Block>(shared_from_this(), *offset, block, part), size);
      }
      shares_.give(part, block);
    }
    ++overflows_;
    overflow_bytes_ += size;
  }
  return HostBytes::undefined(size);
}

void BatchArena::step_boundary() {
  std::lock_guard lock(mutex_);
  for (size_t part = 0; part < rules_.size(); ++part) {
    Wish& wish = wishes_[part];
    const uint64_t wanted = wish.largest();
    if (wanted > 0) {
      fragmentation_[part] = allocator_.unusable_share(wanted);
      if (fragmentation_[part] > rules_[part].fragmentation_tolerance) {
        compact(wanted, rules_[part].fragmentation_tolerance);
        fragmentation_[part] = allocator_.unusable_share(wanted);
      }
    }
    wish.before = wish.now;
    wish.now = 0;
  }
}

// With the lock held, so that nobody holds or takes a block meanwhile.
void BatchArena::compact(uint64_t wanted, double tolerance) {
  const CompactionPlan plan =
      plan_compaction(allocator_.map(), allocator_.blocks(), wanted, tolerance, /*movable_references=*/1, kMostMoved);
  if (plan.moves.empty()) return;
  ++compactions_;
  for (const CompactionMove& move : plan.moves) {
    auto parked = parked_.find(move.from);
    if (parked == parked_.end()) continue;
    const uint64_t used = allocator_.block(move.from).requested;
    if (!allocator_.move(move.from, move.to, move.size, 1)) continue;
    Block* block = parked->second;
    parked_.erase(parked);
    std::memcpy(memory_ + move.to, memory_ + move.from, used);
    block->moved(move.to);
    parked_[move.to] = block;
    compacted_bytes_ += used;
  }
}

BatchMemoryUse BatchArena::use() const {
  std::lock_guard lock(mutex_);
  return {allocator_.statistics(), shares_.use(), fragmentation_, overflows_, overflow_bytes_, compactions_, compacted_bytes_};
}

}  // namespace mso
