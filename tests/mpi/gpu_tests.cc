// Tests that need a GPU: 'skipped: no GPU' and exit code 77 where there is none. With several ranks, one GPU
// each.
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "comm/cuda_module.h"
#include "comm/element_ops.h"
#include "comm/gradient_reducer.h"
#include "comm/reduce.h"
#include "mpi_tests.h"

namespace mso::mpi_tests {

namespace {

constexpr double kTimeoutS = 60;
const CudaModuleApi* gpu = nullptr;

// Device memory with the content of a vector.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : count_(host.size()) {
    data_ = static_cast<T*>(gpu->allocate(std::max<size_t>(1, count_) * sizeof(T)));
    if (count_ > 0) gpu->copy(data_, host.data(), count_ * sizeof(T));
  }
  explicit OnDevice(size_t count) : OnDevice(std::vector<T>(count)) {}
  ~OnDevice() { gpu->release(data_); }
  OnDevice(const OnDevice&) = delete;
  T* data() { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    if (count_ > 0) gpu->copy(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  T* data_;
  size_t count_;
};

template <typename T>
std::vector<T> values(int rank, size_t count, uint64_t salt) {
  std::vector<T> v(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits({uint64_t(rank), i, salt});
    if constexpr (std::is_floating_point_v<T>)
      v[i] = T((double(bits >> 11) * 0x1p-53 - 0.5) * std::ldexp(1.0, int(bits % 40) - 20));
    else
      v[i] = static_cast<T>(bits);
  }
  return v;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
std::vector<T> reduced(int ranks, size_t count, uint64_t salt, DType dtype, ReduceOp op) {
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> pointers;
  for (int r = 0; r < ranks; ++r) inputs.push_back(values<T>(r, count, salt));
  for (auto& input : inputs) pointers.push_back(input.data());
  std::vector<T> out(count);
  reduce_in_order(out.data(), pointers, count, dtype, op);
  return out;
}

template <typename T>
void check_kernel(DType dtype, ReduceOp op) {
  for (int ranks : {1, 2, 3, 8}) {
    for (size_t count : {1, 31, 1000, 300001}) {
      const int rank = ranks / 2;
      std::vector<T> others;
      for (int r = 0; r < ranks; ++r) {
        if (r == rank) continue;
        const auto v = values<T>(r, count, 3);
        others.insert(others.end(), v.begin(), v.end());
      }
      OnDevice<T> own(values<T>(rank, count, 3)), rest(others), out(count);
      gpu->reduce_in_order(out.data(), own.data(), rank, rest.data(), count, ranks, count, dtype, op,
                           nullptr);
      MSO_CHECK(same_bits(out.host(), reduced<T>(ranks, count, 3, dtype, op)));
    }
  }
}

void test_kernels() {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    check_kernel<float>(DType::kF32, op);
    check_kernel<double>(DType::kF64, op);
    check_kernel<int64_t>(DType::kI64, op);
    check_kernel<uint64_t>(DType::kU64, op);
  }
  check_kernel<uint64_t>(DType::kU64, ReduceOp::kBitOr);

  std::vector<float> floats;
  for (uint64_t i = 0; i < 200000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random_bits({i}))));
  std::vector<uint16_t> halves;
  for (float f : floats) halves.push_back(f32_to_bf16(f));
  OnDevice<float> in(floats);
  OnDevice<uint16_t> out(floats.size());
  gpu->f32_to_bf16(in.data(), out.data(), floats.size(), nullptr);
  MSO_CHECK(same_bits(out.host(), halves));
  OnDevice<float> back(floats.size());
  gpu->bf16_to_f32(out.data(), back.data(), floats.size(), nullptr);
  std::vector<float> expected;
  for (uint16_t h : halves) expected.push_back(bf16_to_f32(h));
  MSO_CHECK(same_bits(back.host(), expected));
}

template <typename T>
void check_collectives(Communicator& group, DType dtype, ReduceOp op) {
  for (size_t count : {0, 1, 1000, 8193, 1000003}) {
    OnDevice<T> data(values<T>(group.rank(), count, count));
    group.all_reduce(data.data(), count, dtype, op)->wait(deadline_in(kTimeoutS));
    MSO_CHECK(same_bits(data.host(), reduced<T>(group.size(), count, count, dtype, op)));

    std::vector<size_t> counts(group.size(), 0);  // the first part is empty where there are several
    size_t total = 0, before = 0;
    for (int r = 0; r < group.size(); ++r) {
      counts[r] = group.size() == 1 ? count : r * count;
      if (r == group.rank()) before = total;
      total += counts[r];
    }
    OnDevice<T> input(values<T>(group.rank(), total, 9)), part(counts[group.rank()]), all(total);
    group.reduce_scatter(input.data(), part.data(), counts, dtype, op)->wait(deadline_in(kTimeoutS));
    const auto sums = reduced<T>(group.size(), total, 9, dtype, op);
    MSO_CHECK(same_bits(part.host(),
                        std::vector<T>(sums.begin() + before, sums.begin() + before + counts[group.rank()])));
    group.all_gather(part.data(), all.data(), counts, dtype)->wait(deadline_in(kTimeoutS));
    MSO_CHECK(same_bits(all.host(), sums));
  }
}

void test_communicator(World& world) {
  const int device = choose_device(world.communicator(), *gpu, kTimeoutS);
  gpu->use_device(device);
  auto group = gpu->make_communicator(world.communicator(), "gpu", device, nullptr, kTimeoutS);
  MSO_CHECK(group->size() == world.size() && group->rank() == world.rank());
  check_collectives<float>(*group, DType::kF32, ReduceOp::kSum);
  check_collectives<double>(*group, DType::kF64, ReduceOp::kMax);
  check_collectives<int64_t>(*group, DType::kI64, ReduceOp::kSum);
  check_collectives<uint64_t>(*group, DType::kU64, ReduceOp::kBitOr);
  for (int root = 0; root < group->size(); ++root) {
    OnDevice<uint64_t> data(values<uint64_t>(group->rank(), 10000, 4));
    group->broadcast(data.data(), 80000, root)->wait(deadline_in(kTimeoutS));
    MSO_CHECK(same_bits(data.host(), values<uint64_t>(root, 10000, 4)));
  }
  for (int i = 0; i < 5; ++i) barrier_now(*group, kTimeoutS);
  if (group->size() > 1) {
    const int right = (group->rank() + 1) % group->size(),
              left = (group->rank() + group->size() - 1) % group->size();
    OnDevice<float> out(values<float>(group->rank(), 500000, 6)), in(500000);
    auto sent = group->send(out.data(), 2000000, right, 1);
    auto got = group->receive(in.data(), 2000000, left, 1);
    sent->wait(deadline_in(kTimeoutS));
    got->wait(deadline_in(kTimeoutS));
    MSO_CHECK(same_bits(in.host(), values<float>(left, 500000, 6)));
  }
  // The gradient reducer, with buckets in device memory.
  const FlatLayout layout =
      make_flat_layout({{"a", "", {100, 7}, 0, 0}, {"b", "", {3}, 0, 0}, {"c", "", {50000}, 0, 0}});
  const auto buckets = plan_buckets(layout, 500, group->size());
  const Shard shard = make_shard(buckets, group->rank());
  OnDevice<float> gradients(values<float>(group->rank(), layout.size, 8)), mine(shard.size),
      weights(layout.size);
  GradientReducer reducer(*group, layout, buckets, gradients.data());
  reducer.start(mine.data());
  for (size_t t : {1, 2, 0}) reducer.mark_ready(t);
  reducer.finish(deadline_in(kTimeoutS));
  all_gather_weights(*group, buckets, DType::kF32, mine.data(), weights.data(), deadline_in(kTimeoutS));
  MSO_CHECK(
      same_bits(weights.host(), reduced<float>(group->size(), layout.size, 8, DType::kF32, ReduceOp::kSum)));
  auto half = group->split(group->rank() % 2, 0, "every other");
  barrier_now(*half, kTimeoutS);
}

// A peer that does not come: the deadline holds, and the group says so from then on.
void test_deadline(World& world) {
  const int device = choose_device(world.communicator(), *gpu, kTimeoutS);
  auto group = gpu->make_communicator(world.communicator(), "gpu", device, nullptr, kTimeoutS);
  barrier_now(*group, kTimeoutS);
  if (world.rank() == 0) {
    int failures = 0;
    for (int i = 0; i < 2; ++i) {
      try {
        barrier_now(*group, 1);
      } catch (const Error& e) {
        failures += e.exit_code() == ExitCode::kPeerLost;
      }
    }
    MSO_CHECK(failures == 2);
  }
  barrier_now(world.communicator(), kTimeoutS);
}

}  // namespace
}  // namespace mso::mpi_tests

int main(int argc, char** argv) {
  using namespace mso::mpi_tests;
  mso::init_logging("info");
  try {
    std::string why;
    gpu = mso::open_cuda_module(&why);
    const std::string which = argc > 1 ? argv[1] : "kernels";
    if (which == "count") {
      std::printf("%d\n", gpu == nullptr ? 0 : gpu->device_count());
      return 0;
    }
    if (gpu == nullptr) {
      std::printf("skipped: no GPU (%s)\n", why.c_str());
      return 77;
    }
    mso::World world;
    if (which == "kernels")
      test_kernels();
    else if (which == "communicator")
      test_communicator(world);
    else if (which == "deadline")
      test_deadline(world);
    else
      throw mso::Error("no such test", which, "kernels, communicator, deadline, count",
                       mso::ExitCode::kBadUsage);
    if (world.rank() == 0) std::printf("%s: passed on %d GPUs\n", which.c_str(), world.size());
  } catch (const mso::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return static_cast<int>(e.exit_code());
  }
  return 0;
}
