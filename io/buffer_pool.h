// Memory for decoded samples and batches that is used again: fresh pages cost as much time as decoding a small picture. It
// comes from one arena that the kinds of samples share (memory/batch_arena.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/host_tensor.h"
#include "io/modality.h"
#include "memory/batch_arena.h"

namespace mso {

// One for each modality, in the order of kAllModalities: image 45 %, text 30 %, audio 25 %; video borrows. Tolerances of
// fragmentation 12, 8, 15 and 15 %.
std::vector<MemoryShare> default_batch_shares();

// Thread-safe.
class BufferPool {
 public:
  // Error (kBadUsage) for shares above the whole.
  explicit BufferPool(uint64_t most_bytes, const std::vector<MemoryShare>& shares = default_batch_shares());

  // A tensor with undefined content, charged to the modality's share. Beyond the arena it is on the heap. Its memory goes
  // back when it is destroyed, at the latest; it may outlive the pool.
  HostTensor tensor(DType dtype, std::vector<int64_t> shape, Modality modality = Modality::kImage);
  // The same at once.
  void give_back(HostTensor&& tensor) { tensor = HostTensor{}; }
  // Says of a finished tensor that nobody reads or writes it until it is asked for its data again: it may be moved.
  static void park(HostTensor& tensor) { tensor.bytes.park(); }
  // Between two steps: compacts where a modality's fragmentation is above its tolerance.
  void step_boundary() { arena_->step_boundary(); }

  BatchMemoryUse use() const { return arena_->use(); }

 private:
  std::shared_ptr<BatchArena> arena_;
};

}  // namespace mso
