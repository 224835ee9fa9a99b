// Adds up gradients over the data parallel group while backward still runs, and brings updated weights to all
// ranks while the optimizer still runs: both bucket by bucket.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/communicator.h"
#include "comm/flat_layout.h"

namespace mso {

struct ReduceStatistics {
  double overlapped_s = 0;   // from the first bucket's start to finish(): in flight during backward
  double inside_s = 0;       // of that, spent in mark_ready() and poll() (adding up, moving data)
  double waited_s = 0;       // inside finish()
  size_t early_buckets = 0;  // started before finish()
};

// One per run; start() … finish() once per step. Not thread-safe (autograd's hooks on the CPU run in the
// thread that calls backward).
//
// Buckets are reduce-scattered strictly from the last to the first, the order in which backward completes
// them, whatever the order of the marks: so all ranks start the same operations in the same order, even where
// a rank had no image and its encoder's gradients never come.
class GradientReducer {
 public:
  // `flat_gradients`: layout.size elements, accumulated by backward; must not move. Buckets from plan_buckets
  // with the group's size (Error otherwise).
  GradientReducer(Communicator& group, const FlatLayout& layout, std::vector<Bucket> buckets,
                  const float* flat_gradients);

  // Begins a step: before the backward pass of the last micro-batch. `shard_out` receives this rank's shard
  // (layout as make_shard's) and must live until finish().
  void start(float* shard_out);
  // The gradient of this tensor (index in the layout) is complete. Each tensor at most once a step (Error
  // otherwise).
  void mark_ready(size_t tensor);
  // Progress of what is in flight; cheap. mark_ready() calls it.
  void poll();
  // Reduces what was never marked as it stands in the buffer (zeros for a stage without input), then waits.
  // After it, `shard_out` holds the sums and the flat gradients may be overwritten. Error(kPeerLost) at the
  // deadline; the step cannot be continued then.
  ReduceStatistics finish(Deadline deadline);

  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  void start_bucket();

  Communicator& group_;
  const FlatLayout& layout_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_tensor_, shard_offset_;  // by tensor; by bucket
  const float* gradients_;
  float* shard_out_ = nullptr;
  std::vector<bool> ready_;
  std::vector<size_t> missing_;     // tensors not yet ready, by bucket
  size_t next_ = 0;                 // buckets [0, next_) are not started
  std::vector<HandlePtr> handles_;  // in flight
  Clock::time_point first_start_{};
  ReduceStatistics statistics_;
};

// Brings updated shards to all ranks: start(b) as soon as the optimizer has passed this rank's part of bucket
// b, for b = 0, 1, 2 … on every rank (also where the part is empty), then finish().
class WeightGatherer {
 public:
  // `dtype` of weights: F32, or BF16 where the shard was rounded before.
  WeightGatherer(Communicator& group, std::vector<Bucket> buckets, DType dtype);

  // `shard`: this rank's updated weights, laid out as make_shard's. `flat_weights`: the whole buffer; may be
  // read again after finish(). Both must live until then.
  void start(size_t bucket, const void* shard, void* flat_weights);
  void poll();
  // Waits for all buckets (all must have been started) and returns how long.
  double finish(Deadline deadline);

 private:
  Communicator& group_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> shard_offset_;
  size_t element_;
  DType dtype_;
  size_t next_ = 0;
  std::vector<HandlePtr> handles_;
};

// All buckets at once: start, then finish.
void all_gather_weights(Communicator& group, const std::vector<Bucket>& buckets, DType dtype,
                        const void* shard, void* flat_weights, Deadline deadline);

}  // namespace mso
