// A flat buffer of numbers: 64-byte aligned, zeroed, on huge pages where the kernel gives them. Parameters,
// gradients and optimizer state of a stage are views of such buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace mso {

// Zeroed bytes, aligned to 64 (2 MiB from there on, with MADV_HUGEPAGE). Error when there is no memory.
void* allocate_zeroed(size_t bytes);
void release_zeroed(void* data, size_t bytes);

template <typename T>
class FlatBuffer {
 public:
  FlatBuffer() = default;
  explicit FlatBuffer(size_t count)
      : data_(static_cast<T*>(allocate_zeroed(count * sizeof(T)))), count_(count) {}
  FlatBuffer(FlatBuffer&& other) noexcept { swap(other); }
  FlatBuffer& operator=(FlatBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FlatBuffer() { release_zeroed(data_, count_ * sizeof(T)); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void swap(FlatBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace mso
