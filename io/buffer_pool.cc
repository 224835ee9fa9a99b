#include "io/buffer_pool.h"

#include <utility>

namespace mso {

HostTensor BufferPool::tensor(DType dtype, std::vector<int64_t> shape) {
  HostTensor tensor{dtype, std::move(shape), {}};
  const size_t need = static_cast<size_t>(tensor.count()) * size_of(dtype);
  {
    std::lock_guard lock(mutex_);
    size_t best = buffers_.size();
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const size_t size = buffers_[i].size();
      if (size < need || size / 2 > need) continue;
      if (best == buffers_.size() || size < buffers_[best].size()) best = i;
    }
    if (best < buffers_.size()) {
      tensor.bytes = std::move(buffers_[best]);
      buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(best));
      bytes_ -= tensor.bytes.size();
    }
  }
  tensor.bytes.resize(need);  // a kept buffer is never smaller, so nothing is filled with zeros here
  return tensor;
}

void BufferPool::give_back(HostTensor&& tensor) {
  if (tensor.bytes.empty()) return;
  std::vector<std::vector<std::byte>> dropped;  // freed without the lock
  std::lock_guard lock(mutex_);
  bytes_ += tensor.bytes.size();
  buffers_.push_back(std::move(tensor.bytes));
  while (bytes_ > most_bytes_) {
    bytes_ -= buffers_.front().size();
    dropped.push_back(std::move(buffers_.front()));
    buffers_.erase(buffers_.begin());
  }
}

uint64_t BufferPool::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace mso
