// This rank's share of the optimizer (ZeRO-1): master weights, AdamW moments and the reduced gradients of its
// part of every bucket, each one contiguous buffer, and the pass that turns gradients into new weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckpt/delta.h"
#include "ckpt/recovery.h"
#include "ckpt/snapshot.h"
#include "comm/communicator.h"
#include "comm/flat_layout.h"
#include "comm/gradient_reducer.h"
#include "exec/parameter_groups.h"
#include "memory/flat_buffer.h"
#include "model/training_graph.h"

namespace mso {

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double clip_norm = 1.0;  // global norm; ≤ 0: off
  int gradient_buffers = 1;  // gradients of so many steps stay, for snapshots to write in the background
  std::vector<ParameterGroupRule> groups;
};

// Bytes, by stage, of what rank `rank`'s optimizer allocates: its shard of master weights, two moments, and the gradients of
// `gradient_buffers` steps.
std::map<std::string, uint64_t> optimizer_bytes(const FlatLayout& layout, const std::vector<Bucket>& buckets, int rank,
                                                int gradient_buffers);

class ShardedOptimizer {
 public:
  // Takes the graph's present weights as master weights (take_weights). `graph` and `group` must outlive the optimizer.
  ShardedOptimizer(TrainingGraph& graph, Communicator& group, std::vector<Bucket> buckets, OptimizerOptions options);

  // The graph's weights become the master weights.
  void take_weights();

  // Where the reduced, still unscaled gradient sum of this rank's shard goes in the step that leads to `step` finished
  // ones. [shard size] Stays as it is for the next gradient_buffers - 1 steps.
  float* gradient_shard(uint64_t step) { return gradients_[step % gradients_.size()].data(); }
  size_t gradient_buffers() const { return gradients_.size(); }
  size_t shard_size() const { return shard_.size; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Σ g² over this shard, in double, in one fixed order: part of the global norm.
  double gradient_square(uint64_t step) const;

  struct Outcome {
    double gradient_norm = 0;  // of the mean-loss gradient, before clipping
    double clip_factor = 1;    // what it was multiplied with
  };
  // AdamW (Loshchilov & Hutter 2019) with the mean gradient = sum / `label_tokens`, clipped to the global norm
  // (torch.nn.utils.clip_grad_norm_: factor min(1, clip / (norm + 1e-6))), then gathers all ranks' new weights into
  // the graph, bucket by bucket in the order of the forward pass, overlapped with the pass over the next buckets.
  // `step` counts from 1 for bias correction. A step without any label leaves everything as it is.
  Outcome step(uint64_t step, double learning_rate, double global_gradient_square, double label_tokens,
               double timeout_s);

  // The same on a gradient shard that was loaded: moves master weights and moments as step() did, bit by bit, and
  // leaves the graph's weights to publish_weights().
  void roll_forward(uint64_t step, double learning_rate, double global_gradient_square, double label_tokens);

  // The state for a snapshot: "master", "exp_avg", "exp_avg_sq". Valid as long as the optimizer.
  std::vector<StateBuffer> state_buffers() const;
  // Where load_state() puts saved state, whatever number of ranks wrote it.
  std::vector<TargetBuffer> load_targets();
  // The reduced gradient of `step` as "gradient.<step>": for a snapshot, and where load_delta() puts it.
  StateBuffer gradient_state(uint64_t step) const;
  TargetBuffer gradient_target(uint64_t step);
  // After loading: brings the graph's weights on all ranks up to the master weights.
  void publish_weights(double timeout_s);

 private:
  // AdamW on the shard; calls `bucket_done(bucket)` after each bucket's part.
  template <typename BucketDone>
  Outcome update(uint64_t step, double learning_rate, double global_gradient_square, double label_tokens,
                 BucketDone bucket_done);
  void finish_gather(double timeout_s);

  TrainingGraph& graph_;
  std::vector<Bucket> buckets_;
  OptimizerOptions options_;
  Shard shard_;
  std::vector<ShardSegment> segments_;
  std::vector<TensorSlice> slices_;
  FlatBuffer<float> master_, exp_avg_, exp_avg_sq_;
  std::vector<FlatBuffer<float>> gradients_;  // by step modulo their number
  WeightGatherer gatherer_;
};

}  // namespace mso
