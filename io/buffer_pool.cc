#include "io/buffer_pool.h"

#include <utility>

namespace mso {

std::vector<MemoryShare> default_batch_shares() {
  PerModality<MemoryShare> shares;
  shares[Modality::kImage] = {"image", 0.45, 0.12};
  shares[Modality::kText] = {"text", 0.30, 0.08};
  shares[Modality::kAudio] = {"audio", 0.25, 0.15};
  shares[Modality::kVideo] = {"video", 0, 0.15};
  return {shares.begin(), shares.end()};
}

// Blocks are powers of two, so twice the limit of bytes asked for is always enough in sum.
BufferPool::BufferPool(uint64_t most_bytes, const std::vector<MemoryShare>& shares)
    : arena_(BatchArena::make(2 * most_bytes, shares)) {}

HostTensor BufferPool::tensor(DType dtype, std::vector<int64_t> shape, Modality modality) {
  HostTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes = arena_->allocate(tensor.byte_count(), static_cast<size_t>(modality));
  return tensor;
}

}  // namespace mso
