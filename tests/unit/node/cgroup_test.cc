// Control groups: what is mounted, where a process is, and children for decoder threads (real ones where this machine has a
// v1 cpuset tree that may be written; v2 is tested in the virtual machine).
#include "node/cgroup.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "made_up_node.h"
#include "node/thread_place.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

TEST(Cgroups, KnowWhatIsMounted) {
  const MadeUpNode made;
  made.write("proc/self/mountinfo",
             "30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
             "31 30 0:27 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n"
             "32 30 0:28 / /sys/fs/cgroup/cpuset rw shared:11 - cgroup cgroup rw,cpuset\n"
             "33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
             "broken line\n");
  const CgroupMounts hybrid = find_cgroup_mounts(made.root());
  EXPECT_EQ(hybrid.version, 1);
  EXPECT_EQ(hybrid.cpuset, made / "sys/fs/cgroup/cpuset");
  EXPECT_EQ(hybrid.unified, made / "sys/fs/cgroup/uni fied");
  EXPECT_EQ(hybrid.controllers, (std::vector<std::string>{"cpu", "cpuacct", "cpuset", "xattr"}));

  made.write("proc/self/mountinfo", "31 30 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  made.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n");
  const CgroupMounts unified = find_cgroup_mounts(made.root());
  EXPECT_EQ(unified.version, 2);
  EXPECT_EQ(unified.controllers, (std::vector<std::string>{"cpuset", "cpu", "io", "memory"}));

  made.write("proc/7/cgroup", "0::/system.slice/slurmstepd.scope/job_1\n");
  EXPECT_EQ(cgroup_of(unified, 7, made.root()), made / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_1");
  EXPECT_FALSE(cgroup_of(unified, 8, made.root()));
  made.write("proc/self/mountinfo", "");
  EXPECT_EQ(find_cgroup_mounts(made.root()).version, 0);
}

TEST(Cgroups, PathsOfAProcess) {
  const std::string v1 = "7:memory:/m\n3:cpuset:/slurm_n1/uid_0/job_2/step_0\n1:name=systemd:/\n0::/init.scope\n";
  EXPECT_EQ(cgroup_path_in(v1, 1), "/slurm_n1/uid_0/job_2/step_0");
  EXPECT_EQ(cgroup_path_in(v1, 2), "/init.scope");
  EXPECT_EQ(cgroup_path_in("5:cpu,cpuset:/both", 1), "/both");
  EXPECT_FALSE(cgroup_path_in("nothing", 1));
  EXPECT_FALSE(cgroup_path_in("", 2));
}

TEST(Cgroups, ADecoderThreadIsHeldByItsV1Child) {
  const CgroupMounts mounts = find_cgroup_mounts();
  if (mounts.version != 1 || mounts.cpuset.empty()) GTEST_SKIP() << "no cgroup v1 cpuset here";
  const fs::path parent = mounts.cpuset / ("mso-test-" + std::to_string(::getpid()));
  if (::mkdir(parent.c_str(), 0755) != 0) GTEST_SKIP() << "may not make cgroups here";
  auto put = [&](const char* file, const std::string& value) { std::ofstream(parent / file) << value; };
  std::ifstream memory(mounts.cpuset / "cpuset.mems");
  std::string nodes;
  memory >> nodes;
  const CpuSet all = current_cpus();
  put("cpuset.cpus", format_cpu_list(all));
  put("cpuset.mems", nodes);

  const DecoderCgroups made = make_decoder_cgroups(mounts, parent, "mso_0", {all.back()}, {all.front()}, 12345);
  struct stat info = {};
  ASSERT_EQ(::stat((made.image / "tasks").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12345u);
  ASSERT_EQ(::stat((made.image / "cpuset.cpus").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u);  // the set itself is not the user's to change
  std::thread([&] {
    std::ofstream(made.image / "tasks") << ::syscall(SYS_gettid);
    EXPECT_EQ(current_cpus(), CpuSet{all.back()});
    EXPECT_FALSE(remove_decoder_cgroups(parent, "mso_0", 0.02).empty());  // it is in use
    std::ofstream(parent / "tasks") << ::syscall(SYS_gettid);
    std::ofstream(mounts.cpuset / "tasks") << ::syscall(SYS_gettid);
  }).join();
  EXPECT_TRUE(remove_decoder_cgroups(parent, "mso_0", 2).empty());
  EXPECT_TRUE(remove_decoder_cgroups(parent, "mso_0", 0).empty());  // again: nothing to do

  // CPUs outside the parent are refused, and nothing is left.
  put("cpuset.cpus", std::to_string(all.front()));
  if (all.size() > 1) {
    EXPECT_THROW(make_decoder_cgroups(mounts, parent, "mso_1", {all.front()}, {all.back()}, 0), Error);
    EXPECT_FALSE(fs::exists(parent / "mso_1.image"));
    EXPECT_FALSE(fs::exists(parent / "mso_1.video"));
  }
  EXPECT_EQ(::rmdir(parent.c_str()), 0);
}

TEST(Cgroups, AreFoundByStep) {
  const MadeUpNode made;
  CgroupMounts mounts{1, "", made / "cpuset", {}};
  made.write("cpuset/slurm_n1/uid_5/job_7/step_0/tasks", "");
  made.write("cpuset/slurm_n2/uid_5/job_7/step_0/tasks", "");
  made.write("cpuset/slurm_n1/uid_5/job_77/step_0/tasks", "");
  EXPECT_EQ(step_cgroups(mounts, 7, 0, "n1"), (std::vector<fs::path>{made / "cpuset/slurm_n1/uid_5/job_7/step_0"}));
  EXPECT_TRUE(step_cgroups(mounts, 7, 1, "n1").empty());
  mounts = {2, made / "unified", "", {}};
  made.write("unified/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0/x", "");
  EXPECT_EQ(step_cgroups(mounts, 7, 0xfffffffb, "n1").size(), 1u);
}

// A machine with cgroup v2 and root: the virtual machine of tests/vm.
TEST(Cgroups, ADecoderThreadIsHeldByItsThreadedChild) {
  const CgroupMounts mounts = find_cgroup_mounts();
  if (mounts.version != 2 || ::geteuid() != 0) GTEST_SKIP() << "no cgroup v2 here, or not root";
  const fs::path top = mounts.unified / ("mso-test-" + std::to_string(::getpid())), task = top / "task_0";
  if (::mkdir(top.c_str(), 0755) != 0) GTEST_SKIP() << "may not make cgroups here";
  auto put = [](const fs::path& file, const std::string& value) {
    std::ofstream out(file);
    out << value << std::flush;
    return out.good();
  };
  ASSERT_TRUE(put(top / "cgroup.subtree_control", "+cpuset +memory"));
  ASSERT_EQ(::mkdir(task.c_str(), 0755), 0);
  const CpuSet all = current_cpus();
  const pid_t child = ::fork();
  if (child == 0) {  // the task
    put(task / "cgroup.procs", std::to_string(::getpid()));
    const DecoderCgroups made = make_decoder_cgroups(mounts, task, "mso_0", {all.back()}, {all.front()}, 12345);
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(2);
    ::setenv(kImageCgroupVariable, made.image.c_str(), 1);
    int failed = 0;
    std::thread([&] {
      if (place_this_thread(ThreadClass::kImage) != "") failed |= 4;
      if (current_cpus() != CpuSet{all.back()}) failed |= 8;
      set_current_cpus(all);  // a wider mask does not lead out
      if (current_cpus() != CpuSet{all.back()}) failed |= 16;
    }).join();
    if (current_cpus() != all) failed |= 32;  // the others stay where they were
    if (put(made.image / "cpuset.cpus", format_cpu_list(all))) failed |= 64;
    if (::mkdir((task / "own").c_str(), 0755) == 0 || ::mkdir((made.image / "own").c_str(), 0755) == 0) failed |= 128;
    ::_exit(failed);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "failed steps, bits: " << (status >> 8);
  EXPECT_NE(::mkdir((task / "third").c_str(), 0755), 0);  // number limited, root too
  EXPECT_TRUE(remove_decoder_cgroups(task, "mso_0", 2).empty());
  EXPECT_EQ(::rmdir(task.c_str()), 0);  // nothing stands in slurmstepd's way
  EXPECT_EQ(::rmdir(top.c_str()), 0);
}

TEST(Cgroups, NoneMountedIsAnError) {
  EXPECT_THROW(make_decoder_cgroups({}, "/x", "mso_0", {0}, {0}, 0), Error);
}

}  // namespace
}  // namespace mso
