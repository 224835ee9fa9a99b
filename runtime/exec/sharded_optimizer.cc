#include "exec/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/adamw.h"
#include "exec/gradient_norm.h"

namespace mso {

std::map<std::string, uint64_t> optimizer_bytes(const FlatLayout& layout, const std::vector<Bucket>& buckets, int rank,
                                                int gradient_buffers) {
  std::map<std::string, uint64_t> bytes = elements_by_stage(layout, make_shard(buckets, rank));
  for (auto& [stage, count] : bytes) count *= static_cast<uint64_t>(3 + std::max(1, gradient_buffers)) * sizeof(float);
  return bytes;
}

ShardedOptimizer::ShardedOptimizer(TrainingGraph& graph, Communicator& group, std::vector<Bucket> buckets,
                                   OptimizerOptions options)
    : graph_(graph),
      buckets_(std::move(buckets)),
      options_(std::move(options)),
      shard_(make_shard(buckets_, group.rank())),
      segments_(segments_of_shard(graph.layout(), shard_,
                                  parameter_settings(graph.layout(), options_.weight_decay, options_.groups))),
      slices_(slices_of_shard(graph.layout(), shard_)),
      master_(shard_.size),
      exp_avg_(shard_.size),
      exp_avg_sq_(shard_.size),
      gatherer_(group, buckets_, DType::kF32) {
  for (int i = 0; i < std::max(1, options_.gradient_buffers); ++i) gradients_.emplace_back(shard_.size);
  take_weights();
}

void ShardedOptimizer::take_weights() {
  for (const ShardPiece& piece : shard_.pieces)
    std::memcpy(master_.data() + piece.shard_offset, graph_.weights() + piece.flat_offset, piece.count * sizeof(float));
}

double ShardedOptimizer::gradient_square(uint64_t step) const {
  return sum_of_squares(gradients_[step % gradients_.size()].data(), shard_.size);
}

template <typename BucketDone>
ShardedOptimizer::Outcome ShardedOptimizer::update(uint64_t step, double learning_rate, double global_gradient_square,
                                                   double label_tokens, BucketDone bucket_done) {
  Outcome outcome;
  if (label_tokens <= 0) return outcome;
  outcome.gradient_norm = std::sqrt(global_gradient_square) / label_tokens;
  if (options_.clip_norm > 0) outcome.clip_factor = std::min(1.0, options_.clip_norm / (outcome.gradient_norm + 1e-6));

  AdamWParameters parameters;
  parameters.beta1 = options_.beta1;
  parameters.beta2 = options_.beta2;
  parameters.eps = options_.epsilon;
  parameters.step = static_cast<int64_t>(step);
  parameters.gradient_scale = outcome.clip_factor / label_tokens;
  const float* gradient = gradient_shard(step);
  size_t segment = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (; segment < segments_.size() && segments_[segment].bucket == bucket; ++segment) {
      const ShardSegment& s = segments_[segment];
      parameters.lr = learning_rate * s.settings.learning_rate_scale;
      parameters.weight_decay = s.settings.weight_decay;
      adamw_step(master_.data() + s.shard_offset, exp_avg_.data() + s.shard_offset,
                 exp_avg_sq_.data() + s.shard_offset, gradient + s.shard_offset, s.count, parameters);
    }
    bucket_done(bucket);
  }
  return outcome;
}

ShardedOptimizer::Outcome ShardedOptimizer::step(uint64_t step, double learning_rate, double global_gradient_square,
                                                 double label_tokens, double timeout_s) {
  Outcome outcome = update(step, learning_rate, global_gradient_square, label_tokens, [&](size_t bucket) {
    gatherer_.start(bucket, master_.data(), graph_.weights());
    gatherer_.poll();
  });
  if (label_tokens > 0) finish_gather(timeout_s);
  return outcome;
}

void ShardedOptimizer::roll_forward(uint64_t step, double learning_rate, double global_gradient_square,
                                    double label_tokens) {
  update(step, learning_rate, global_gradient_square, label_tokens, [](size_t) {});
}

void ShardedOptimizer::publish_weights(double timeout_s) {
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    gatherer_.start(bucket, master_.data(), graph_.weights());
  finish_gather(timeout_s);
}

void ShardedOptimizer::finish_gather(double timeout_s) {
  gatherer_.finish(deadline_in(timeout_s));
  graph_.weights_changed(0, graph_.layout().size);
}

std::vector<StateBuffer> ShardedOptimizer::state_buffers() const {
  return {{"master", DType::kF32, master_.data(), shard_.size, slices_},
          {"exp_avg", DType::kF32, exp_avg_.data(), shard_.size, slices_},
          {"exp_avg_sq", DType::kF32, exp_avg_sq_.data(), shard_.size, slices_}};
}

std::vector<TargetBuffer> ShardedOptimizer::load_targets() {
  return {{"master", DType::kF32, master_.data(), shard_.size, slices_, true},
          {"exp_avg", DType::kF32, exp_avg_.data(), shard_.size, slices_, false},
          {"exp_avg_sq", DType::kF32, exp_avg_sq_.data(), shard_.size, slices_, false}};
}

StateBuffer ShardedOptimizer::gradient_state(uint64_t step) const {
  return {gradient_buffer_name(step), DType::kF32, gradients_[step % gradients_.size()].data(), shard_.size, slices_};
}

TargetBuffer ShardedOptimizer::gradient_target(uint64_t step) {
  return {gradient_buffer_name(step), DType::kF32, gradient_shard(step), shard_.size, slices_, true};
}

}  // namespace mso
