#include "memory/host_pool.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "memory/slice_scope.h"

namespace mso {

namespace {

constexpr size_t kHeader = 64;  // in front of each block; keeps blocks aligned to 64
struct BlockHeader {
  size_t size;
  int slice;  // that is charged for it; -1: none
};
static_assert(sizeof(BlockHeader) <= kHeader);
constexpr size_t kHugePage = size_t{2} << 20;

// Blocks come in sizes of eight steps per power of two: at most an eighth is wasted, and a step with slightly
// longer samples finds the blocks of the last.
size_t rounded(size_t bytes) {
  if (bytes <= 1024) return 1024;
  const size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

class HostPool final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    void* data = take(rounded(bytes + kHeader));
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  HostPoolUse use() {
    std::lock_guard lock(mutex_);
    return {live_, kept_};
  }

  static HostPool& instance() {
    static HostPool* pool = new HostPool;  // outlives every tensor
    return *pool;
  }

 private:
  static void release(void* data) {
    if (data != nullptr) instance().give(data);
  }

  // A slice that is full is the user's limit, not the machine's: the message names it.
  static void charge(int slice, size_t size) {
    SliceTable* table = slice_table();
    if (slice < 0 || table->take(slice, size)) return;
    throw Error("a memory slice is full", std::to_string(size) + " more bytes asked of " +
                table->use()[static_cast<size_t>(slice)].name + " (" + table->describe() + ")",
                "a larger slice (--mso-gpu-slices), a smaller data.micro_batch_tokens, or model.activation_recomputation");
  }

  void* take(size_t size) {
    const int slice = current_slice();
    charge(slice, size);
    char* block = nullptr;
    try {
      block = find_block(size);
    } catch (...) {
      if (slice >= 0) slice_table()->give(slice, size);
      throw;
    }
    const BlockHeader header{size, slice};
    std::memcpy(block, &header, sizeof header);
    return block + kHeader;
  }

  char* find_block(size_t size) {
    std::lock_guard lock(mutex_);
    live_ += size;
    peak_ = std::max(peak_, live_);
    if (auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
      char* block = it->second.back();
      it->second.pop_back();
      kept_ -= size;
      return block;
    }
    if (live_ + kept_ > peak_ + peak_ / 2) trim();
    const size_t alignment = size >= kHugePage ? kHugePage : kHeader;
    char* block =
        static_cast<char*>(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
    if (block == nullptr) {
      trim();
      block =
          static_cast<char*>(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
    }
    if (block == nullptr) {
      live_ -= size;
      throw Error("out of memory", std::to_string(size) + " bytes for a tensor",
                  "lower data.micro_batch_tokens or set model.activation_recomputation");
    }
    if (alignment == kHugePage) ::madvise(block, size, MADV_HUGEPAGE);
    return block;
  }

  void give(void* data) {
    char* block = static_cast<char*>(data) - kHeader;
    BlockHeader header;
    std::memcpy(&header, block, sizeof header);
    const size_t size = header.size;
    if (header.slice >= 0) slice_table()->give(header.slice, size);
    std::lock_guard lock(mutex_);
    live_ -= size;
    kept_ += size;
    free_[size].push_back(block);
  }

  void trim() {
    for (auto& [size, blocks] : free_) {
      for (char* block : blocks) std::free(block);
      blocks.clear();
    }
    kept_ = 0;
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<char*>> free_;
  size_t live_ = 0, kept_ = 0, peak_ = 0;
};

}  // namespace

void install_host_pool() {
#if !defined(__SANITIZE_ADDRESS__)
  c10::SetCPUAllocator(&HostPool::instance(), 1);
#endif
}

HostPoolUse host_pool_use() {
  return HostPool::instance().use();
}

}  // namespace mso
