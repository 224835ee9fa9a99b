// GPU slices: what is accepted, what fits which device, what tasks are told, when MPS is used.
#include "node/gpu_slices.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mso {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<GpuFact> two_gpus() {
  GpuFact whole{0, 0, "GPU-aaaa", "NVIDIA H200", "0000:17:00.0", 0, 141 * kGiB, {}};
  GpuFact split{1, 1, "GPU-bbbb", "NVIDIA H200", "0000:98:00.0", 1, 141 * kGiB, {{"MIG-1", 16 * kGiB}, {"MIG-2", 35 * kGiB}}};
  return {whole, split};
}

TEST(GpuSlices, AreParsedStrictly) {
  std::vector<std::string> mistakes;
  const auto slices = parse_slices("vision:24G,llm:32GiB,shared:512M", mistakes);
  ASSERT_TRUE(slices);
  EXPECT_EQ(*slices, (std::vector<Slice>{{"vision", 24 * kGiB}, {"llm", 32 * kGiB}, {"shared", kGiB / 2}}));
  EXPECT_EQ(format_slices(*slices), "vision:25769803776,llm:34359738368,shared:536870912");
  EXPECT_EQ(parse_slices(format_slices(*slices), mistakes), slices);  // canonical text reads back
  EXPECT_EQ(slices_total(*slices), 56 * kGiB + kGiB / 2);
  EXPECT_TRUE(mistakes.empty());
  for (const char* bad : {"", "vision", "vision:", "vision:0", "vision:-1", "vision:1e99G", "vision:%s", "vision:1K", "vision:17T",
                          "vision:24G,vision:24G", "vison:24G", "vision:24G;llm:2G", "vision:24G,", "vision:99999999999999999999"}) {
    mistakes.clear();
    EXPECT_FALSE(parse_slices(bad, mistakes)) << bad;
    EXPECT_FALSE(mistakes.empty()) << bad;
  }
  mistakes.clear();
  EXPECT_FALSE(parse_slices("vison:24G,lm:0", mistakes));
  EXPECT_EQ(mistakes.size(), 2u);
  EXPECT_NE(mistakes[0].find("did you mean vision?"), std::string::npos);
}

TEST(GpuSlices, DevicesAreGpusOrTheirInstances) {
  const std::vector<SliceDevice> devices = slice_devices(two_gpus(), {1, 0});
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].id, "MIG-1");
  EXPECT_EQ(devices[0].memory_bytes, 16 * kGiB);
  EXPECT_EQ(devices[2].id, "GPU-aaaa");
  EXPECT_EQ(devices[2].numa, 0);
  std::vector<std::string> mistakes;
  EXPECT_EQ(visible_devices(two_gpus(), "MIG-2,0", mistakes).size(), 2u);
  EXPECT_EQ(visible_devices(two_gpus(), "GPU-aaaa", mistakes)[0].id, "GPU-aaaa");
  EXPECT_TRUE(mistakes.empty());
  EXPECT_TRUE(visible_devices(two_gpus(), "7", mistakes).empty());
  EXPECT_EQ(mistakes.size(), 1u);
  EXPECT_TRUE(visible_devices(two_gpus(), "", mistakes).empty());
}

TEST(GpuSlices, TheSumIsCheckedAgainstEachDevice) {
  const std::vector<Slice> slices = {{"vision", 10 * kGiB}, {"llm", 10 * kGiB}};
  const std::vector<SliceDevice> devices = slice_devices(two_gpus(), {0, 1});
  const SlicePlan plan = plan_slices(slices, devices, 3, 0);
  ASSERT_EQ(plan.mistakes.size(), 1u);
  EXPECT_EQ(plan.mistakes[0], "slices add up to 20.0 GiB, MIG instance 0 of GPU 1 has 16.0 GiB");
  EXPECT_TRUE(plan_slices(slices, devices, 1, 0).mistakes.empty());  // the small instance is not used
  EXPECT_TRUE(plan_slices(slices, devices, 2, 0, {0, 2}).mistakes.empty());
}

TEST(GpuSlices, TasksOnOneDeviceShareATable) {
  const std::vector<SliceDevice> devices = {{"GPU-a", "GPU 0", 80 * kGiB, 0}, {"GPU-b", "GPU 1", 80 * kGiB, 1}};
  const SlicePlan plan = plan_slices({{"shared", kGiB}}, devices, 5, 0);
  ASSERT_EQ(plan.tasks.size(), 5u);
  EXPECT_EQ(plan.tasks[4].device, "GPU-a");
  EXPECT_EQ(plan.tasks[4].table, 0);
  EXPECT_EQ(plan.tasks[4].sharers, 3);
  EXPECT_EQ(plan.tasks[1].sharers, 2);
  EXPECT_EQ(parse_task_slices(format_task_slices(plan.tasks[1])), plan.tasks[1]);
  EXPECT_EQ(format_task_slices(plan.tasks[1]), "device=GPU-b;table=1;sharers=2;slices=shared:1073741824");
  for (const char* bad : {"", "device=x", "device=x;table=0;sharers=0;slices=shared:1G", "device=x;table=0;sharers=1;slices=",
                          "device=;table=0;sharers=1;slices=shared:1G", "device=x;table=-1;sharers=1;slices=shared:1G", "nonsense"})
    EXPECT_FALSE(parse_task_slices(bad)) << bad;
}

TEST(GpuSlices, WithoutGpuTasksHaveHostTables) {
  const SlicePlan plan = plan_slices({{"vision", 2 * kGiB}, {"shared", 2 * kGiB}}, {}, 3, 12 * kGiB);
  EXPECT_TRUE(plan.mistakes.empty());
  EXPECT_EQ(plan.tasks[2], (TaskSlices{"host", 2, 1, {{"vision", 2 * kGiB}, {"shared", 2 * kGiB}}}));
  EXPECT_EQ(plan_slices({{"vision", 4 * kGiB}}, {}, 4, 12 * kGiB).mistakes.size(), 1u);
  EXPECT_TRUE(plan_slices({{"vision", 16384 * kGiB}}, {}, 4, 0).mistakes.empty());  // memory unknown
  EXPECT_THROW(plan_slices({}, {}, 0, 0), Error);
}

TEST(Mps, OnlyWhereTheAdminTurnedItOnAndNobodyElseManagesIt) {
  for (int bits = 0; bits < 16; ++bits) {
    const MpsFacts facts{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    const MpsDecision decision = decide_mps(facts);
    EXPECT_EQ(decision.set_limits, bits == (1 | 4)) << bits;
    EXPECT_FALSE(decision.why.empty());
  }
  EXPECT_EQ(mps_memory_limit({"GPU-a", 0, 2, {{"vision", 8 * kGiB}, {"llm", 8 * kGiB}}}), "0=8192M");
}

}  // namespace
}  // namespace mso
