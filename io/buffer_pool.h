// Memory for pixels that is used again: fresh pages cost as much time as decoding a small picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/host_tensor.h"

namespace mso {

// Thread-safe.
class BufferPool {
 public:
  explicit BufferPool(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // A tensor with undefined content: from the smallest kept buffer that is large enough and not more than twice the
  // need, else newly allocated.
  HostTensor tensor(DType dtype, std::vector<int64_t> shape);
  // Keeps the tensor's memory for later; beyond `most_bytes` the oldest buffers are freed.
  void give_back(HostTensor&& tensor);

  uint64_t kept_bytes() const;

 private:
  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::vector<std::byte>> buffers_;  // oldest first
  uint64_t bytes_ = 0;
};

}  // namespace mso
