#include <algorithm>

#include "comm/gradient_reducer.h"
#include "mpi_tests.h"

namespace mso::mpi_tests {

void measure_speed(World& world) {
  Communicator& group = world.communicator();
  const auto measure = [&](const char* what, size_t bytes, auto&& f) {
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      barrier_now(group, 60);
      const auto begin = Clock::now();
      f();
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    if (group.rank() == 0) {
      std::printf("%-16s %8.3f MB on %d ranks: median %9.3f ms, best %9.3f ms, %6.2f GB/s\n", what,
                  bytes / 1e6, group.size(), times[times.size() / 2] * 1e3, times[0] * 1e3,
                  bytes / times[times.size() / 2] / 1e9);
    }
  };
  for (size_t count : {size_t{1}, size_t{8000}, size_t{250000}, size_t{14'000'000}}) {
    std::vector<float> data(count, 1), out(count);
    std::vector<size_t> counts(group.size(), count / group.size());
    counts.back() = count - counts[0] * (group.size() - 1);
    measure("all-reduce", count * 4,
            [&] { all_reduce_now(group, data.data(), count, DType::kF32, ReduceOp::kMax, 60); });
    measure("reduce-scatter", count * 4, [&] {
      group.reduce_scatter(data.data(), out.data(), counts, DType::kF32, ReduceOp::kSum)
          ->wait(deadline_in(60));
    });
    measure("all-gather", count * 4,
            [&] { group.all_gather(out.data(), data.data(), counts, DType::kF32)->wait(deadline_in(60)); });
    measure("broadcast", count * 4, [&] { broadcast_now(group, data.data(), count * 4, 0, 60); });
  }
  // The gradients of a 14 M model in buckets of 25 MB, all at once.
  std::vector<FlatTensor> tensors;
  for (int t = 0; t < 140; ++t)
    tensors.push_back({.name = std::to_string(t), .stage = "", .shape = {100000}});
  const FlatLayout layout = make_flat_layout(tensors);
  const auto buckets = plan_buckets(layout, 25'000'000 / 4, group.size());
  std::vector<float> gradients(layout.size, 1), shard(make_shard(buckets, group.rank()).size),
      weights(layout.size);
  GradientReducer reducer(group, layout, buckets, gradients.data());
  measure("reducer", layout.size * 4, [&] {
    reducer.start(shard.data());
    for (int t = 140; t-- > 0;) reducer.mark_ready(t);
    reducer.finish(deadline_in(60));
  });
  measure("weights", layout.size * 4, [&] {
    all_gather_weights(group, buckets, DType::kF32, shard.data(), weights.data(), deadline_in(60));
  });
}

}  // namespace mso::mpi_tests
