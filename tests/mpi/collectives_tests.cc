#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "mpi_tests.h"

namespace mso::mpi_tests {

namespace {

constexpr double kTimeoutS = 60;

// What rank r contributes at element i: any rank can compute every other's.
template <typename T>
T value(int r, size_t i, uint64_t salt) {
  if constexpr (std::is_floating_point_v<T>) {
    return T((random_uniform({uint64_t(r), i, salt}) - 0.5) *
             std::ldexp(1.0, int(random_bits({uint64_t(r), i, salt, 2}) % 40) - 20));
  } else {
    return static_cast<T>(random_bits({uint64_t(r), i, salt}));
  }
}
template <typename T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      if constexpr (std::is_same_v<T, int64_t>)
        return T(uint64_t(a) + uint64_t(b));
      else
        return a + b;
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    default:
      if constexpr (std::is_same_v<T, uint64_t>)
        return a | b;
      else
        std::abort();
  }
}
// In the order of ranks, in the type itself: the bits the project promises.
template <typename T>
std::vector<T> expected(int ranks, size_t count, uint64_t salt, ReduceOp op) {
  std::vector<T> sums(count);
  for (size_t i = 0; i < count; ++i) {
    sums[i] = value<T>(0, i, salt);
    for (int r = 1; r < ranks; ++r) sums[i] = combine(sums[i], value<T>(r, i, salt), op);
  }
  return sums;
}
template <typename T>
std::vector<T> mine(int rank, size_t count, uint64_t salt) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value<T>(rank, i, salt);
  return values;
}
template <typename T>
bool same_bits(const T* a, const T* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(T)) == 0;
}

// Random parts; every third is empty.
std::vector<size_t> random_counts(int ranks, uint64_t salt, size_t limit) {
  std::vector<size_t> counts;
  for (int r = 0; r < ranks; ++r) {
    const uint64_t bits = random_bits({salt, 77, uint64_t(r)});
    counts.push_back(bits % 3 == 0 ? 0 : (bits >> 8) % limit);
  }
  return counts;
}

template <typename T>
void check_reductions(Communicator& group, DType dtype, ReduceOp op) {
  uint64_t salt = 1;
  for (size_t count : {0, 1, 3, 100, 8192, 8193, 100003, 700001}) {
    ++salt;
    auto data = mine<T>(group.rank(), count, salt);
    all_reduce_now(group, data.data(), count, dtype, op, kTimeoutS);
    MSO_CHECK(same_bits(data.data(), expected<T>(group.size(), count, salt, op).data(), count));
  }
  for (size_t limit : {1, 2, 50, 5000, 400000}) {
    ++salt;
    const auto counts = random_counts(group.size(), salt, limit);
    size_t total = 0, before = 0;
    for (int r = 0; r < group.size(); ++r) {
      if (r < group.rank()) before += counts[r];
      total += counts[r];
    }
    const auto data = mine<T>(group.rank(), total, salt);
    std::vector<T> out(counts[group.rank()]);
    group.reduce_scatter(data.data(), out.data(), counts, dtype, op)->wait(deadline_in(kTimeoutS));
    MSO_CHECK(same_bits(out.data(), expected<T>(group.size(), total, salt, op).data() + before, out.size()));
    MSO_CHECK(same_bits(data.data(), mine<T>(group.rank(), total, salt).data(), total));  // input untouched
  }
}

void check_gather(Communicator& group, bool in_place) {
  for (size_t limit : {1, 2, 50, 5000, 3000000}) {
    const auto counts = random_counts(group.size(), limit + in_place, limit);
    std::vector<uint8_t> all;
    size_t before = 0;
    for (int r = 0; r < group.size(); ++r) {
      if (r == group.rank()) before = all.size();
      for (size_t i = 0; i < counts[r]; ++i) all.push_back(value<uint8_t>(r, i, limit));
    }
    std::vector<uint8_t> out(all.size(), 0),
        part(all.begin() + before, all.begin() + before + counts[group.rank()]);
    const void* input = part.data();
    if (in_place) {
      std::copy(part.begin(), part.end(), out.begin() + before);
      input = out.data() + before;
    }
    group.all_gather(input, out.data(), counts, DType::kU8)->wait(deadline_in(kTimeoutS));
    MSO_CHECK(out == all);
  }
}

void check_the_rest(Communicator& group) {
  for (int root = 0; root < group.size(); ++root) {
    for (size_t bytes : {0, 1, 1000, 5000000}) {
      std::vector<uint8_t> data(bytes);
      if (group.rank() == root) data = mine<uint8_t>(root, bytes, bytes);
      broadcast_now(group, data.data(), bytes, root, kTimeoutS);
      MSO_CHECK(data == mine<uint8_t>(root, bytes, bytes));
    }
  }
  std::vector<std::string> texts;
  for (int r = 0; r < group.size(); ++r) texts.push_back(r % 2 ? std::string(r * 10000, 'a' + r) : "");
  MSO_CHECK(all_gather_text(group, texts[group.rank()], kTimeoutS) == texts);

  // Point to point: a ring in both tags at once, received in the other order; empty and large messages.
  if (group.size() > 1) {
    const int right = (group.rank() + 1) % group.size(),
              left = (group.rank() + group.size() - 1) % group.size();
    for (size_t bytes : {0, 1, 70000, 3000000}) {
      const auto a = mine<uint8_t>(group.rank(), bytes, 1), b = mine<uint8_t>(group.rank(), bytes, 2);
      std::vector<uint8_t> got_a(bytes), got_b(bytes);
      auto send_a = group.send(a.data(), bytes, right, 5), send_b = group.send(b.data(), bytes, right, 32767);
      auto receive_b = group.receive(got_b.data(), bytes, left, 32767);
      auto receive_a = group.receive(got_a.data(), bytes, left, 5);
      for (Handle* handle : {receive_b.get(), receive_a.get(), send_a.get(), send_b.get()}) {
        handle->wait(deadline_in(kTimeoutS));
      }
      MSO_CHECK(got_a == mine<uint8_t>(left, bytes, 1));
      MSO_CHECK(got_b == mine<uint8_t>(left, bytes, 2));
    }
  }
  for (int i = 0; i < 20; ++i) barrier_now(group, kTimeoutS);
}

// Whoever calls with a wrong argument gets an Error at once, and the group stays usable.
void check_mistakes(Communicator& group) {
  const auto throws = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  float x = 0;
  MSO_CHECK(throws([&] { group.all_reduce(&x, 1, DType::kBF16, ReduceOp::kSum); }));
  MSO_CHECK(throws([&] { group.all_gather(&x, &x, std::vector<size_t>(group.size() + 1, 1), DType::kF32); }));
  MSO_CHECK(throws([&] { group.broadcast(&x, 4, group.size()); }));
  MSO_CHECK(throws([&] { group.send(&x, 4, group.rank(), 0); }));
  MSO_CHECK(throws([&] { group.receive(&x, 4, group.size(), 0); }));
  if (group.size() > 1)
    MSO_CHECK(throws([&] { group.send(&x, 4, (group.rank() + 1) % group.size(), 40000); }));
  barrier_now(group, kTimeoutS);
}

}  // namespace

void test_collectives(World& world) {
  Communicator& group = world.communicator();
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    check_reductions<float>(group, DType::kF32, op);
    check_reductions<double>(group, DType::kF64, op);
    check_reductions<int64_t>(group, DType::kI64, op);
    check_reductions<uint64_t>(group, DType::kU64, op);
  }
  check_reductions<uint64_t>(group, DType::kU64, ReduceOp::kBitOr);
  check_gather(group, false);
  check_gather(group, true);
  check_the_rest(group);
  check_mistakes(group);

  // 40 MB, twice: the same bits.
  const size_t large = 10'000'019;
  std::vector<float> first = mine<float>(group.rank(), large, 5), second = first;
  all_reduce_now(group, first.data(), large, DType::kF32, ReduceOp::kSum, kTimeoutS);
  all_reduce_now(group, second.data(), large, DType::kF32, ReduceOp::kSum, kTimeoutS);
  MSO_CHECK(same_bits(first.data(), second.data(), large));
  for (size_t i = 0; i < large; i += 997) {
    float sum = value<float>(0, i, 5);
    for (int r = 1; r < group.size(); ++r) sum += value<float>(r, i, 5);
    MSO_CHECK(sum == first[i]);
  }

  // Groups of every other rank, in reverse order, and none.
  auto part = group.split(group.rank() % 2, -group.rank(), "every other");
  MSO_CHECK(part->size() == (group.size() + 1 - group.rank() % 2) / 2);
  uint64_t bits = uint64_t{1} << group.rank();
  all_reduce_now(*part, &bits, 1, DType::kU64, ReduceOp::kBitOr, kTimeoutS);
  MSO_CHECK(bits == ((group.rank() % 2 ? 0xaaaaull : 0x5555ull) & ((1ull << group.size()) - 1)));
  std::vector<uint64_t> ranks(part->size());
  const uint64_t me = group.rank();
  part->all_gather(&me, ranks.data(), std::vector<size_t>(part->size(), 1), DType::kU64)
      ->wait(deadline_in(kTimeoutS));
  for (size_t i = 1; i < ranks.size(); ++i) MSO_CHECK(ranks[i] < ranks[i - 1]);
  auto none = group.split(group.rank() == 0 ? 0 : -1, 0, "first only");
  MSO_CHECK((none != nullptr) == (group.rank() == 0));
  if (none) check_mistakes(*none);
}

void test_concurrency(World& world) {
  // Three threads, each with a group of its own, do the same collectives at the same time.
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int t = 0; t < 3; ++t)
    groups.push_back(world.communicator().split(0, world.rank(), "thread " + std::to_string(t)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Communicator& group = *groups[t];
      for (int i = 0; i < 30; ++i) {
        const size_t count = random_bits({uint64_t(t), uint64_t(i)}) % (i % 5 == 0 ? 300000 : 3000);
        auto data = mine<float>(group.rank(), count, t * 100 + i);
        all_reduce_now(group, data.data(), count, DType::kF32, ReduceOp::kSum, kTimeoutS);
        MSO_CHECK(same_bits(data.data(),
                            expected<float>(group.size(), count, t * 100 + i, ReduceOp::kSum).data(), count));
      }
    });
  }
  for (auto& thread : threads) thread.join();

  // Twelve operations in flight, finished in an order of each rank's own.
  Communicator& group = world.communicator();
  std::vector<std::vector<double>> data;
  std::vector<HandlePtr> handles;
  for (size_t i = 0; i < 12; ++i) data.push_back(mine<double>(group.rank(), i * i * 700, i));
  for (auto& d : data) handles.push_back(group.all_reduce(d.data(), d.size(), DType::kF64, ReduceOp::kSum));
  for (size_t i = 0; i < 12; ++i) {
    KeyedPermutation order(12, group.rank());
    handles[order(i)]->wait(deadline_in(kTimeoutS));
  }
  for (size_t i = 0; i < 12; ++i) {
    MSO_CHECK(same_bits(data[i].data(),
                        expected<double>(group.size(), data[i].size(), i, ReduceOp::kSum).data(),
                        data[i].size()));
  }

  // Operations dropped before they are done disturb nobody: what follows is right.
  for (int i = 0; i < 5; ++i) {
    std::vector<float> dropped(i % 2 ? 100 : 200000, 1);
    group.all_reduce(dropped.data(), dropped.size(), DType::kF32, ReduceOp::kSum).reset();
    auto values = mine<float>(group.rank(), 1000, i);
    all_reduce_now(group, values.data(), values.size(), DType::kF32, ReduceOp::kSum, kTimeoutS);
    MSO_CHECK(same_bits(values.data(), expected<float>(group.size(), 1000, i, ReduceOp::kSum).data(), 1000));
  }
  barrier_now(group, kTimeoutS);
}

}  // namespace mso::mpi_tests
