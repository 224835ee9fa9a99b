// The bytes of a tensor in host memory: on the heap, or a block of memory that somebody else manages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

namespace mso {

// Memory that goes back to its manager when the block is destroyed (memory/batch_arena.h). Held, it has a fixed address;
// parked, the manager may give it another one.
class HostBlock {
 public:
  virtual ~HostBlock() = default;
  virtual std::byte* hold() = 0;  // its address from now on; cheap when it is held already
  virtual void park() = 0;        // nobody uses the address any more
};

// Moving hands the memory on; a copy is always on the heap.
class HostBytes {
 public:
  HostBytes() = default;
  explicit HostBytes(size_t size) { resize(size); }  // zeros
  template <std::contiguous_iterator Iterator>
  HostBytes(Iterator begin, Iterator end) : HostBytes(undefined(static_cast<size_t>(end - begin))) {
    std::copy(begin, end, heap_.get());
  }
  static HostBytes undefined(size_t size);           // on the heap, not filled
  HostBytes(std::unique_ptr<HostBlock> block, size_t size) : size_(size), block_(std::move(block)) {}
  HostBytes(HostBytes&& other) noexcept { swap(other); }
  HostBytes& operator=(HostBytes&& other) noexcept {
    HostBytes taken(std::move(other));
    swap(taken);
    return *this;
  }
  HostBytes(const HostBytes& other);
  HostBytes& operator=(const HostBytes& other) {
    HostBytes copy(other);
    swap(copy);
    return *this;
  }

  std::byte* data() { return block_ ? block_->hold() : heap_.get(); }
  const std::byte* data() const { return block_ ? block_->hold() : heap_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* begin() { return data(); }
  std::byte* end() { return data() + size_; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size_; }
  // Keeps what is there as far as it goes, zeros behind it; then on the heap, unless it becomes no larger.
  void resize(size_t size);
  // Says that nobody keeps an address of this memory; the next data() may be another.
  void park() {
    if (block_) block_->park();
  }

 private:
  void swap(HostBytes& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(heap_, other.heap_);
    std::swap(block_, other.block_);
  }

  size_t size_ = 0;
  std::unique_ptr<std::byte[]> heap_;
  std::unique_ptr<HostBlock> block_;
};

bool operator==(const HostBytes& a, const HostBytes& b);

}  // namespace mso
