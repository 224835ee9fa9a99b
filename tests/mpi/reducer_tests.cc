#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "comm/gradient_reducer.h"
#include "mpi_tests.h"

namespace mso::mpi_tests {

namespace {

FlatLayout make_layout(uint64_t seed) {
  std::vector<FlatTensor> tensors;
  for (uint64_t t = 0; t < 30; ++t) {
    FlatTensor tensor;
    tensor.name = "t" + std::to_string(t);
    const auto dim = [&](uint64_t limit) { return int64_t(1 + random_bits({seed, t, limit}) % limit); };
    tensor.shape = t % 3 == 0 ? std::vector<int64_t>{dim(3)} : std::vector<int64_t>{dim(300), dim(301)};
    tensors.push_back(tensor);
  }
  return make_flat_layout(tensors);
}

float gradient(int rank, uint64_t step, size_t i) {
  return float((random_uniform({uint64_t(rank), step, i}) - 0.5) * std::ldexp(1.0, int(i % 30) - 15));
}

}  // namespace

void test_reducer(World& world) {
  Communicator& group = world.communicator();
  const int rank = group.rank(), size = group.size();
  for (size_t bucket_elements : {size_t{1}, size_t{100000}, size_t{1} << 30}) {
    const FlatLayout layout = make_layout(bucket_elements);
    const auto buckets = plan_buckets(layout, bucket_elements, size);
    const Shard shard = make_shard(buckets, rank);
    std::vector<float> gradients(layout.size), reduced(shard.size), again(shard.size), weights(layout.size);
    GradientReducer reducer(group, layout, buckets, gradients.data());
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t i = 0; i < layout.size; ++i) gradients[i] = gradient(rank, step, i);
      // Marks in an order of each rank's own; the last rank has no gradient for a third of the tensors.
      for (float* out : {reduced.data(), again.data()}) {
        KeyedPermutation order(layout.tensors.size(),
                               random_bits({uint64_t(rank), step, out == again.data()}));
        reducer.start(out);
        for (size_t t = 0; t < layout.tensors.size(); ++t) {
          if (rank == size - 1 && order(t) % 3 == 1) continue;
          reducer.mark_ready(order(t));
          if (t % 4 == 0) reducer.poll();
        }
        reducer.finish(deadline_in(60));
      }
      MSO_CHECK(std::memcmp(reduced.data(), again.data(), shard.size * sizeof(float)) == 0);
      for (const ShardPiece& piece : shard.pieces) {
        for (size_t i = 0; i < piece.count; ++i) {
          float sum = gradient(0, step, piece.flat_offset + i);
          for (int r = 1; r < size; ++r) sum += gradient(r, step, piece.flat_offset + i);
          MSO_CHECK(sum == reduced[piece.shard_offset + i]);
        }
      }
      // The way back: everybody gets every shard, bucket by bucket.
      WeightGatherer gatherer(group, buckets, DType::kF32);
      for (size_t b = 0; b < buckets.size(); ++b) {
        gatherer.start(b, reduced.data(), weights.data());
        gatherer.poll();
      }
      gatherer.finish(deadline_in(60));
      for (size_t i = 0; i < layout.size; ++i) {
        float sum = gradient(0, step, i);
        for (int r = 1; r < size; ++r) sum += gradient(r, step, i);
        MSO_CHECK(sum == weights[i]);
      }
      // In two bytes an element.
      std::vector<uint16_t> half_shard(shard.size), half_weights(layout.size);
      for (const ShardPiece& piece : shard.pieces) {
        for (size_t i = 0; i < piece.count; ++i)
          half_shard[piece.shard_offset + i] = uint16_t(piece.flat_offset + i);
      }
      all_gather_weights(group, buckets, DType::kBF16, half_shard.data(), half_weights.data(),
                         deadline_in(60));
      for (size_t i = 0; i < layout.size; ++i) MSO_CHECK(half_weights[i] == uint16_t(i));
    }
  }
}

}  // namespace mso::mpi_tests
