#include "memory/host_pool.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "memory/flat_buffer.h"

namespace mso {
namespace {

at::Tensor make(int64_t floats) {
  return at::empty({floats}, at::TensorOptions(at::kFloat));
}

TEST(FlatBuffer, IsAlignedZeroedAndMoves) {
  for (size_t count : {size_t{1}, size_t{1000}, size_t{3} << 20}) {
    FlatBuffer<float> a(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
    for (size_t i = 0; i < count; i += 999) EXPECT_EQ(a[i], 0);
    a[count - 1] = 5;
    FlatBuffer<float> b = std::move(a);
    EXPECT_EQ(b[count - 1], 5);
    EXPECT_EQ(a.size(), 0u);
  }
  EXPECT_EQ(FlatBuffer<float>(0).data(), nullptr);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(HostPool, UsesBlocksAgainAndStaysBounded) {
  at::Tensor before = make(100);  // from the allocator that was there
  install_host_pool();
  install_host_pool();
  const HostPoolUse start = host_pool_use();
  void* first;
  {
    at::Tensor a = make((1 << 20) + 50000);
    first = a.data_ptr();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_GE(host_pool_use().live, start.live + (4u << 20));
  }
  EXPECT_EQ(host_pool_use().live, start.live);
  EXPECT_EQ(make(1 << 20).data_ptr(), first);  // a slightly smaller one finds the same block
  EXPECT_NE(make(1 << 10).data_ptr(), first);
  EXPECT_EQ(make(0).numel(), 0);
  for (int64_t size = 1000; size < 3'000'000; size += 20000) {
    make(size).fill_(1);
    const HostPoolUse use = host_pool_use();
    EXPECT_LT(use.live + use.kept, size_t{40} << 20);
  }
  before = at::Tensor();
}

TEST(HostPool, WorksFromSeveralThreads) {
  install_host_pool();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::vector<at::Tensor> held;
      for (int i = 0; i < 500; ++i) {
        held.push_back(make(1 + (i * 7919 + t * 104729) % 50000).fill_(t));
        if (held.size() > 8) held.erase(held.begin() + i % 8);
        for (const at::Tensor& x : held) ASSERT_EQ(x.const_data_ptr<float>()[x.numel() - 1], t);
      }
    });
  for (std::thread& thread : threads) thread.join();
}
#endif

}  // namespace
}  // namespace mso
