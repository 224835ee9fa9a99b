#include "comm/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mso {

namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<size_t> part_counts(const Bucket& bucket) {
  std::vector<size_t> counts(bucket.parts.size() - 1);
  for (size_t r = 0; r < counts.size(); ++r) counts[r] = bucket.parts[r + 1] - bucket.parts[r];
  return counts;
}

// Where this rank's part of each bucket lies in its shard (make_shard: one after the other).
std::vector<size_t> shard_offsets(const Communicator& group, const std::vector<Bucket>& buckets) {
  std::vector<size_t> offsets;
  size_t offset = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.parts.size() != static_cast<size_t>(group.size()) + 1) {
      throw Error("buckets were planned for " + std::to_string(bucket.parts.size() - 1) + " ranks",
                  "group '" + group.name() + "' of " + std::to_string(group.size()) + " ranks");
    }
    offsets.push_back(offset);
    offset += bucket.parts[group.rank() + 1] - bucket.parts[group.rank()];
  }
  return offsets;
}

void poll_handles(std::vector<HandlePtr>& handles) {
  std::erase_if(handles, [](const HandlePtr& handle) { return handle->test(); });
}

void wait_for_handles(std::vector<HandlePtr>& handles, Deadline deadline) {
  // In the order of their start; those behind are polled too, so that their chunks are added up on the way.
  while (!handles.empty()) {
    handles.front()->wait(deadline);
    handles.erase(handles.begin());
    poll_handles(handles);
  }
}

}  // namespace

GradientReducer::GradientReducer(Communicator& group, const FlatLayout& layout, std::vector<Bucket> buckets,
                                 const float* flat_gradients)
    : group_(group),
      layout_(layout),
      buckets_(std::move(buckets)),
      bucket_of_tensor_(layout.tensors.size()),
      shard_offset_(shard_offsets(group, buckets_)),
      gradients_(flat_gradients) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t t = buckets_[b].first_tensor; t < buckets_[b].last_tensor; ++t) bucket_of_tensor_[t] = b;
  }
}

void GradientReducer::start(float* shard_out) {
  if (!handles_.empty() || next_ != 0)
    throw Error("a gradient reduction was begun before the last one finished", group_.name());
  shard_out_ = shard_out;
  ready_.assign(layout_.tensors.size(), false);
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.last_tensor - bucket.first_tensor);
  next_ = buckets_.size();
  first_start_ = {};
  statistics_ = {};
}

void GradientReducer::start_bucket() {
  const size_t b = --next_;
  if (first_start_ == Clock::time_point{}) first_start_ = Clock::now();
  handles_.push_back(group_.reduce_scatter(gradients_ + buckets_[b].begin, shard_out_ + shard_offset_[b],
                                           part_counts(buckets_[b]), DType::kF32, ReduceOp::kSum));
}

void GradientReducer::mark_ready(size_t tensor) {
  const auto begin = Clock::now();
  if (tensor >= ready_.size() || ready_[tensor]) {
    throw Error(
        "a gradient was marked complete twice, or outside a step",
        tensor < layout_.tensors.size() ? layout_.tensors[tensor].name : "tensor " + std::to_string(tensor));
  }
  ready_[tensor] = true;
  --missing_[bucket_of_tensor_[tensor]];
  while (next_ > 0 && missing_[next_ - 1] == 0) {
    start_bucket();
    ++statistics_.early_buckets;
  }
  poll_handles(handles_);
  statistics_.inside_s += seconds_since(begin);
}

void GradientReducer::poll() {
  const auto begin = Clock::now();
  poll_handles(handles_);
  statistics_.inside_s += seconds_since(begin);
}

ReduceStatistics GradientReducer::finish(Deadline deadline) {
  const auto begin = Clock::now();
  if (first_start_ != Clock::time_point{}) {
    statistics_.overlapped_s = std::chrono::duration<double>(begin - first_start_).count();
  }
  while (next_ > 0) start_bucket();
  wait_for_handles(handles_, deadline);
  ready_.clear();  // marks outside a step are noticed
  statistics_.waited_s = seconds_since(begin);
  return statistics_;
}

WeightGatherer::WeightGatherer(Communicator& group, std::vector<Bucket> buckets, DType dtype)
    : group_(group),
      buckets_(std::move(buckets)),
      shard_offset_(shard_offsets(group, buckets_)),
      element_(size_of(dtype)),
      dtype_(dtype) {}

void WeightGatherer::start(size_t bucket, const void* shard, void* flat_weights) {
  if (bucket != next_) {
    throw Error("weights must be gathered bucket by bucket",
                "bucket " + std::to_string(bucket) + " given, " + std::to_string(next_) + " expected");
  }
  ++next_;
  handles_.push_back(
      group_.all_gather(static_cast<const std::byte*>(shard) + shard_offset_[bucket] * element_,
                        static_cast<std::byte*>(flat_weights) + buckets_[bucket].begin * element_,
                        part_counts(buckets_[bucket]), dtype_));
}

void WeightGatherer::poll() {
  poll_handles(handles_);
}

double WeightGatherer::finish(Deadline deadline) {
  const auto begin = Clock::now();
  if (next_ != buckets_.size()) {
    throw Error("weights of some buckets were never gathered",
                "from bucket " + std::to_string(next_) + " on");
  }
  wait_for_handles(handles_, deadline);
  next_ = 0;
  return seconds_since(begin);
}

void all_gather_weights(Communicator& group, const std::vector<Bucket>& buckets, DType dtype,
                        const void* shard, void* flat_weights, Deadline deadline) {
  WeightGatherer gatherer(group, buckets, dtype);
  for (size_t b = 0; b < buckets.size(); ++b) gatherer.start(b, shard, flat_weights);
  gatherer.finish(deadline);
}

}  // namespace mso
