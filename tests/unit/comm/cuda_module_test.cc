// The loader and the choice of devices; what needs a GPU is in tests/mpi/gpu_tests.cc.
#include "comm/cuda_module.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "config.h"

namespace mso {
namespace {

using Lists = std::vector<std::vector<std::string>>;

TEST(AssignDevices, AllGpusShownToEveryRank) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(assign_devices(hosts, Lists(4, {"1:0", "2:0"})), (std::vector<int>{0, 1, 0, 1}));
}

TEST(AssignDevices, EachRankShownItsOwn) {
  const std::vector<std::string> hosts = {"a", "a"};
  EXPECT_EQ(assign_devices(hosts, Lists{{"1:0"}, {"2:0"}}), (std::vector<int>{0, 0}));
  // In orders of their own, as CUDA_VISIBLE_DEVICES may say.
  EXPECT_EQ(assign_devices(hosts, Lists{{"2:0", "1:0"}, {"2:0", "1:0"}}), (std::vector<int>{0, 1}));
}

TEST(AssignDevices, MoreRanksThanGpusAreRefusedByName) {
  const std::vector<std::string> hosts = {"a", "a"};
  try {
    assign_devices(hosts, Lists(2, {"1:0"}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
    EXPECT_NE(std::string(e.what()).find("rank 1 on a"), std::string::npos);
  }
  EXPECT_THROW(assign_devices(hosts, Lists(2)), Error);
}

TEST(CudaModule, OpensOnlyWhereAGpuAnswers) {
  std::string why;
  const CudaModuleApi* module = open_cuda_module(&why);
  if (probe_gpus().devices == 0) {
    EXPECT_EQ(module, nullptr);
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(open_cuda_module_and_log(), nullptr);
  }
}

#ifdef MSO_HAVE_CUDA
TEST(CudaModule, LoadsWithoutADriverAndFitsThisVersion) {
  std::string why;
  const CudaModuleApi* module = load_cuda_module(&why);
  if (why == "mso_cuda.so is not installed") GTEST_SKIP() << why;  // only the tests are built
  ASSERT_NE(module, nullptr) << why;
  EXPECT_NE(module->versions().find("NCCL 2."), std::string::npos);
  if (probe_gpus().devices > 0) return;
  EXPECT_EQ(module->device_count(), 0);
  // An error thrown in the module is caught as ours.
  EXPECT_THROW(module->allocate(64), Error);
  auto cpu = make_single_communicator("one");
  EXPECT_THROW(module->make_communicator(*cpu, "gpu", 0, nullptr, 1), Error);
}
#endif

}  // namespace
}  // namespace mso
