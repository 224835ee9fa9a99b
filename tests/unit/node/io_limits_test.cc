// Limits of I/O by lanes, and where they are written.
#include "node/io_limits.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "made_up_node.h"
#include "node/first_line.h"

namespace mso {
namespace {

NvmeFacts some_drives() {
  NvmeFacts drives;
  drives.controllers = {{"nvme0", "", "", "pcie", "", "", 0, 4, 16}, {"nvme1", "", "", "pcie", "", "", 0, 8, 16}, {"nvme2", "", "", "tcp", "", "", -1, 0, 0}};
  drives.namespaces = {{"nvme0n1", 1, "", "", "", 0, {"nvme0"}}, {"nvme0n2", 2, "", "", "", 0, {"nvme0"}}, {"nvme1n1", 1, "", "", "", 0, {"nvme1"}},
                       {"nvme9n1", 1, "", "", "", 0, {"nvme0", "nvme1"}}};
  return drives;
}

TEST(IoLimits, AreLanesTimesRateOnEveryDeviceOfADrive) {
  const MadeUpNode made;
  for (const auto& [device, number] : {std::pair("nvme0n1", "259:0\n"), std::pair("nvme0n2", "259:1\n"), std::pair("nvme1n1", "259:2\n"), std::pair("nvme9n1", "259:9\n")})
    made.write(std::string("sys/block/") + device + "/dev", number);
  const auto number = [&](const std::string& device) { return device_number_of(device, made.root()); };
  const std::vector<NvmeHold> holds = {{"nvme0", "image", 1}, {"nvme0", "video", 2}, {"nvme1", "video", 4}};
  EXPECT_EQ(plan_io_limits(some_drives(), holds, 1000, number),
            (std::vector<IoLimit>{{"259:0", 3000}, {"259:1", 3000}, {"259:2", 4000}, {"259:9", 7000}}));
  EXPECT_TRUE(plan_io_limits(some_drives(), {}, 1000, number).empty());
  EXPECT_TRUE(plan_io_limits(some_drives(), {{"nvme2", "image", 1}}, 1000, number).empty());
  // A drive whose block device the kernel hides has nothing to be limited.
  EXPECT_TRUE(plan_io_limits(some_drives(), {{"nvme0", "image", 1}}, 1000, [](const std::string&) { return ""; }).empty());
  EXPECT_EQ(format_io_limit({"259:0", 3000}), "259:0 rbps=3000 wbps=3000");
}

TEST(IoLimits, TheJobsCgroupIsFoundByItsNameAlone) {
  const std::filesystem::path mount = "/sys/fs/cgroup", scope = mount / "system.slice/slurmstepd.scope";
  EXPECT_EQ(job_cgroup_above(scope / "job_12/step_0/user/task_0", 12, mount), scope / "job_12");
  EXPECT_EQ(job_cgroup_above(scope / "job_12/step_0/user/task_0", 1, mount), std::nullopt);
  EXPECT_EQ(job_cgroup_above(mount / "user.slice/session-1.scope", 12, mount), std::nullopt);
  EXPECT_EQ(job_cgroup_above(mount, 12, mount), std::nullopt);
}

TEST(IoLimits, AreWrittenWhereIoIsDelegated) {
  const MadeUpNode made;
  const std::filesystem::path job = made / "scope/job_5";
  made.write("scope/cgroup.controllers", "cpuset memory\n");
  made.write("scope/job_5/io.max", "");
  EXPECT_THROW(set_job_io(job, {{"259:0", 7}}, 0), Error);
  made.write("scope/cgroup.controllers", "cpuset io memory\n");
  made.write("scope/cgroup.subtree_control", "cpuset\n");
  set_job_io(job, {{"259:0", 7}}, 0);
  EXPECT_EQ(first_line(job / "io.max"), "259:0 rbps=7 wbps=7");
  EXPECT_TRUE(first_line(made / "scope/cgroup.subtree_control").starts_with("+io"));
  EXPECT_THROW(set_job_io(job, {}, 50), Error);  // no file for it
  made.write("scope/job_5/io.bfq.weight", "");
  set_job_io(job, {}, 50);
  EXPECT_EQ(first_line(job / "io.bfq.weight"), "50");
}

}  // namespace
}  // namespace mso
