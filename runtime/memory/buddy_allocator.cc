#include "memory/buddy_allocator.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace mso {

namespace {

[[noreturn]] void refuse(const char* what, uint64_t offset) {
  throw Error(what, "offset " + std::to_string(offset), "a block of the batch memory is used wrongly: a bug");
}

}  // namespace

uint64_t BuddyMap::block_size(uint64_t bytes) { return std::max(kSmallest, std::bit_ceil(std::max<uint64_t>(bytes, 1))); }

int BuddyMap::order_of(uint64_t size) { return std::countr_zero(size / kSmallest); }

BuddyMap::BuddyMap(uint64_t capacity) : capacity_(capacity / kSmallest * kSmallest), free_bytes_(capacity_) {
  for (uint64_t offset = 0; offset < capacity_;) {
    const uint64_t size = std::min(std::bit_floor(capacity_ - offset), size_of(kOrders - 1));
    roots_[offset] = order_of(size);
    free_[static_cast<size_t>(order_of(size))].insert(offset);
    offset += size;
  }
}

int BuddyMap::root_order(uint64_t offset) const { return std::prev(roots_.upper_bound(offset))->second; }

std::optional<uint64_t> BuddyMap::take(uint64_t bytes) {
  if (bytes > capacity_) return std::nullopt;
  const uint64_t size = block_size(bytes);
  for (int order = order_of(size); order < kOrders; ++order) {
    const std::set<uint64_t>& fitting = free_[static_cast<size_t>(order)];
    if (fitting.empty()) continue;
    const uint64_t offset = *fitting.begin();
    take_at(offset, size);
    return offset;
  }
  return std::nullopt;
}

bool BuddyMap::take_at(uint64_t offset, uint64_t size) {
  if (size < kSmallest || !std::has_single_bit(size) || offset % size != 0 || offset >= capacity_ ||
      size > capacity_ - offset)
    return false;
  const int wanted = order_of(size), most = root_order(offset);
  for (int order = wanted; order <= most; ++order) {
    const uint64_t around = offset / size_of(order) * size_of(order);
    auto& level = free_[static_cast<size_t>(order)];
    auto found = level.find(around);
    if (found == level.end()) continue;
    level.erase(found);
    // The halves that are not on the way to the block stay free.
    for (int half = order - 1; half >= wanted; --half) {
      const uint64_t ours = offset / size_of(half) * size_of(half);
      free_[static_cast<size_t>(half)].insert(ours ^ size_of(half));
    }
    free_bytes_ -= size;
    return true;
  }
  return false;
}

void BuddyMap::give(uint64_t offset, uint64_t size) {
  free_bytes_ += size;
  int order = order_of(size);
  for (const int most = root_order(offset); order < most; ++order) {
    auto& level = free_[static_cast<size_t>(order)];
    auto buddy = level.find(offset ^ size_of(order));
    if (buddy == level.end()) break;
    offset = std::min(offset, *buddy);
    level.erase(buddy);
  }
  free_[static_cast<size_t>(order)].insert(offset);
}

uint64_t BuddyMap::free_blocks() const {
  uint64_t count = 0;
  for (const auto& level : free_) count += level.size();
  return count;
}

uint64_t BuddyMap::largest_free() const {
  for (int order = kOrders - 1; order >= 0; --order)
    if (!free_[static_cast<size_t>(order)].empty()) return size_of(order);
  return 0;
}

uint64_t BuddyMap::largest_root() const { return roots_.empty() ? 0 : size_of(roots_.begin()->second); }

double BuddyMap::unusable_share(uint64_t bytes) const {
  if (free_bytes_ == 0) return 0;
  if (bytes > capacity_) return 1;
  const uint64_t size = block_size(bytes);
  uint64_t usable = 0;
  for (int order = order_of(size); order < kOrders; ++order)
    usable += free_[static_cast<size_t>(order)].size() * size_of(order);
  return 1 - static_cast<double>(usable) / static_cast<double>(free_bytes_);
}

std::map<uint64_t, uint64_t> BuddyMap::free_by_offset() const {
  std::map<uint64_t, uint64_t> blocks;
  for (int order = 0; order < kOrders; ++order)
    for (uint64_t offset : free_[static_cast<size_t>(order)]) blocks[offset] = size_of(order);
  return blocks;
}

std::optional<uint64_t> BuddyAllocator::allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const std::optional<uint64_t> offset = map_.take(bytes);
  if (!offset) {
    ++totals_.failures;
    return offset;
  }
  const uint64_t size = BuddyMap::block_size(bytes);
  used_[*offset] = {*offset, size, bytes, 1};
  ++totals_.allocations;
  totals_.block_bytes += size;
  totals_.requested_bytes += bytes;
  totals_.peak_block_bytes = std::max(totals_.peak_block_bytes, totals_.block_bytes);
  return offset;
}

void BuddyAllocator::retain(uint64_t offset) {
  std::lock_guard lock(mutex_);
  auto it = used_.find(offset);
  if (it == used_.end()) refuse("a block that is not in use is held", offset);
  ++it->second.references;
}

uint32_t BuddyAllocator::release(uint64_t offset) {
  std::lock_guard lock(mutex_);
  auto it = used_.find(offset);
  if (it == used_.end()) refuse("a block that is not in use is released", offset);
  if (--it->second.references > 0) return it->second.references;
  totals_.block_bytes -= it->second.size;
  totals_.requested_bytes -= it->second.requested;
  map_.give(offset, it->second.size);
  used_.erase(it);
  return 0;
}

BuddyBlock BuddyAllocator::block(uint64_t offset) const {
  std::lock_guard lock(mutex_);
  auto it = used_.find(offset);
  if (it == used_.end()) refuse("there is no block", offset);
  return it->second;
}

bool BuddyAllocator::move(uint64_t from, uint64_t to, uint64_t size, uint32_t references) {
  std::lock_guard lock(mutex_);
  auto it = used_.find(from);
  if (it == used_.end() || it->second.size != size || it->second.references != references) return false;
  if (!map_.take_at(to, size)) return false;
  map_.give(from, size);
  BuddyBlock block = it->second;
  block.offset = to;
  used_.erase(it);
  used_[to] = block;
  ++totals_.moves;
  return true;
}

BuddyStatistics BuddyAllocator::statistics() const {
  std::lock_guard lock(mutex_);
  BuddyStatistics s = totals_;
  s.capacity = map_.capacity();
  s.blocks = used_.size();
  s.free_bytes = map_.free_bytes();
  s.free_blocks = map_.free_blocks();
  s.largest_free = map_.largest_free();
  return s;
}

double BuddyAllocator::unusable_share(uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  return map_.unusable_share(bytes);
}

std::vector<BuddyBlock> BuddyAllocator::blocks() const {
  std::lock_guard lock(mutex_);
  std::vector<BuddyBlock> list;
  list.reserve(used_.size());
  for (const auto& [offset, block] : used_) list.push_back(block);
  return list;
}

BuddyMap BuddyAllocator::map() const {
  std::lock_guard lock(mutex_);
  return map_;
}

}  // namespace mso
