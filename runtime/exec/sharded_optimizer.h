// This rank's share of the optimizer (ZeRO-1): master weights, AdamW moments and the reduced gradients of its
// part of every bucket, each one contiguous buffer, and the pass that turns gradients into new weights.
#pragma once

#include <vector>

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
  std::vector<ParameterGroupRule> groups;
};

class ShardedOptimizer {
 public:
  // Takes the graph's present weights as master weights. `graph` and `group` must outlive the optimizer.
  ShardedOptimizer(TrainingGraph& graph, Communicator& group, std::vector<Bucket> buckets, OptimizerOptions options);

  // Where the reduced, still unscaled gradient sum of this rank's shard goes. [shard size]
  float* gradient_shard() { return gradient_.data(); }
  size_t shard_size() const { return shard_.size; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Σ g² over this shard, in double, in one fixed order: part of the global norm.
  double gradient_square() const;

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

  // The state for a snapshot: "master", "exp_avg", "exp_avg_sq". Valid as long as the optimizer.
  std::vector<StateBuffer> state_buffers() const;
  // Where load_state() puts saved state, whatever number of ranks wrote it.
  std::vector<TargetBuffer> load_targets();
  // After loading: brings the graph's weights on all ranks up to the master weights.
  void publish_weights(double timeout_s);

 private:
  void finish_gather(double timeout_s);

  TrainingGraph& graph_;
  std::vector<Bucket> buckets_;
  OptimizerOptions options_;
  Shard shard_;
  std::vector<ShardSegment> segments_;
  std::vector<TensorSlice> slices_;
  FlatBuffer<float> master_, exp_avg_, exp_avg_sq_, gradient_;
  WeightGatherer gatherer_;
};

}  // namespace mso
