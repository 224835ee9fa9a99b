// Control groups: what is mounted, where a process is, and children for decoder threads (real ones where this machine has a
// v1 cpuset tree that may be written; v2 is tested in the virtual machine).
#include "node/cgroup.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
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

std::vector<std::string> remove_all_of(const fs::path& parent, const std::string& name, double budget_s) {
  return remove_decoder_cgroups(parent, name, budget_s);
}

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
    EXPECT_FALSE(remove_all_of(parent, "mso_0", 0.02).empty());  // it is in use
    std::ofstream(parent / "tasks") << ::syscall(SYS_gettid);
    std::ofstream(mounts.cpuset / "tasks") << ::syscall(SYS_gettid);
  }).join();
  EXPECT_TRUE(remove_all_of(parent, "mso_0", 2).empty());
  EXPECT_TRUE(remove_all_of(parent, "mso_0", 0).empty());  // again: nothing to do

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
  made.write("unified/system.slice/n2_slurmstepd.scope/job_7/step_batch/user/task_0/x", "");
  EXPECT_EQ(step_cgroups(mounts, 7, 0xfffffffb, "n1").size(), 1u);
  EXPECT_EQ(step_cgroups(mounts, 7, 0xfffffffb, "n2").size(), 2u);
}

TEST(Cgroups, OfThisJobOnThisNodeAlone) {
  EXPECT_TRUE(is_cgroup_of_job("/slurm/uid_1000/job_12/step_0", 12, "n1"));
  EXPECT_TRUE(is_cgroup_of_job("/slurm_n1/uid_1000/job_12", 12, "n1"));
  EXPECT_TRUE(is_cgroup_of_job("/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", 12, "n1"));
  EXPECT_TRUE(is_cgroup_of_job("/system.slice/n1_slurmstepd.scope/job_12/step_batch", 12, "n1"));
  for (const char* other :
       {"/slurm/uid_1000/job_1", "/slurm/uid_1000/job_123", "/slurm_n2/uid_1000/job_12",
        "/slurm_n11/uid_1000/job_12", "/system.slice/n2_slurmstepd.scope/job_12", "/user.slice/job_12",
        "/job_12", "/docker/uid_1/job_12", "/", "", "/user.slice/uid_1000/job_12",
        "/system.slice/xslurmstepd.scope/job_12", "/slurm/uid_1000/job_12x"})
    EXPECT_FALSE(is_cgroup_of_job(other, 12, "n1")) << other;
  EXPECT_FALSE(is_cgroup_of_job("/slurm_/uid_1/job_12", 12, ""));
}

TEST(Cgroups, ATasksOwnAndNoOther) {
  for (const char* right : {"/system.slice/slurmstepd.scope/job_12/step_3/user/task_0",
                            "/system.slice/slurmstepd.scope/job_12/step_3/user/task_special",
                            "/slurmstepd.scope/job_12/step_3/user/task_15",
                            "/system.slice/n1_slurmstepd.scope/job_12/step_3/user/task_0"})
    EXPECT_TRUE(is_task_cgroup(right, 12, 3, "n1")) << right;
  // What a task is in where Slurm's other plugins made nothing for it, and all that is near.
  for (const char* other :
       {"/system.slice/slurmd.service", "/user.slice/user-0.slice/session-1.scope", "/", "",
        "/system.slice/slurmstepd.scope/system", "/system.slice/slurmstepd.scope/job_12",
        "/system.slice/slurmstepd.scope/job_12/step_3", "/system.slice/slurmstepd.scope/job_12/step_3/slurm",
        "/system.slice/slurmstepd.scope/job_12/step_3/user", "/system.slice/slurmstepd.scope/job_12/step_3/user/task_",
        "/system.slice/slurmstepd.scope/job_12/step_3/user/task_0x",
        "/system.slice/slurmstepd.scope/job_12/step_3/user/task_0/mso_0.image",
        "/system.slice/slurmstepd.scope/job_12/step_33/user/task_0",
        "/system.slice/slurmstepd.scope/job_12/step_extern/user/task_special",
        "/system.slice/slurmstepd.scope/job_13/step_3/user/task_0",
        "/system.slice/n2_slurmstepd.scope/job_12/step_3/user/task_0", "/slurm/uid_0/job_12/step_3/user/task_0",
        "/system.slice/slurmstepd.scope/x/job_12/step_3/user/task_0"})
    EXPECT_FALSE(is_task_cgroup(other, 12, 3, "n1")) << other;
  EXPECT_TRUE(is_task_cgroup("/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0", 12, 0xfffffffb, ""));
}

TEST(Cgroups, WhatAKilledStepLeftGoesWithWhatItHeldBack) {
  const MadeUpNode made;
  const auto folder = [&](const std::string& path) { fs::create_directories(made / path); };
  const std::string tree = "cpuset/slurm_n1/uid_5/";
  for (const char* path : {"job_7/step_0/mso_0.image", "job_7/step_0/mso_0.video", "job_7/step_1", "job_8/step_0/mso_0.image"})
    folder(tree + path);
  double budget_s = 0;
  EXPECT_TRUE(remove_left_decoder_cgroups({1, "", made / "cpuset", {}}, 7, "n1", budget_s).empty());
  EXPECT_FALSE(fs::exists(made / (tree + "job_7/step_0")));
  EXPECT_TRUE(fs::exists(made / (tree + "job_7/step_1")));  // none of ours: Slurm's to remove
  EXPECT_TRUE(fs::exists(made / (tree + "job_8/step_0/mso_0.image")));

  const std::string scope = "unified/system.slice/slurmstepd.scope/";
  folder(scope + "job_7/step_0/user/task_0/mso_0.image");
  folder(scope + "job_7/step_0/user/task_1/mso_1.video");
  folder(scope + "job_7/step_0/slurm");
  made.write(scope + "job_7/step_1/user/task_0/mso_0.image/in_use", "");
  const CgroupMounts unified{2, made / "unified", "", {}};
  EXPECT_EQ(remove_left_decoder_cgroups(unified, 7, "n1", budget_s),
            std::vector<std::string>{made / (scope + "job_7/step_1/user/task_0/mso_0.image")});
  EXPECT_FALSE(fs::exists(made / (scope + "job_7/step_0")));
  fs::remove(made / (scope + "job_7/step_1/user/task_0/mso_0.image/in_use"));
  EXPECT_TRUE(remove_left_decoder_cgroups(unified, 7, "n1", budget_s).empty());
  EXPECT_FALSE(fs::exists(made / (scope + "job_7")));
  EXPECT_TRUE(fs::exists(made / scope));
}

TEST(Cgroups, TheKernelIsAskedToKillTasksAndNotSlurmsDaemons) {
  const MadeUpNode made;
  const std::string scope = "system.slice/slurmstepd.scope/";
  for (const char* path : {"job_7/step_0/user/cgroup.kill", "job_7/step_batch/user/cgroup.kill", "job_7/step_0/slurm/cgroup.kill",
                           "job_7/cgroup.kill", "job_77/step_0/user/cgroup.kill"})
    made.write(scope + path, "");
  fs::create_directories(made / (scope + "job_7/step_1/user"));  // an older kernel has no such file
  kill_task_cgroups({2, made.root(), "", {}}, 7, "n1");
  const auto killed = [&](const std::string& path) { return fs::file_size(made / (scope + path)) > 0; };
  EXPECT_TRUE(killed("job_7/step_0/user/cgroup.kill") && killed("job_7/step_batch/user/cgroup.kill"));
  EXPECT_FALSE(killed("job_7/step_0/slurm/cgroup.kill") || killed("job_7/cgroup.kill") || killed("job_77/step_0/user/cgroup.kill"));
  EXPECT_FALSE(fs::exists(made / (scope + "job_7/step_1/user/cgroup.kill")));
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
  EXPECT_TRUE(remove_all_of(task, "mso_0", 2).empty());
  EXPECT_EQ(::rmdir(task.c_str()), 0);  // nothing stands in slurmstepd's way
  EXPECT_EQ(::rmdir(top.c_str()), 0);
}

TEST(Cgroups, AParentWhereChildrenCannotBeMadeIsAsItWas) {
  const CgroupMounts mounts = find_cgroup_mounts();
  if (mounts.version != 2 || ::geteuid() != 0) GTEST_SKIP() << "no cgroup v2 here, or not root";
  const fs::path top = mounts.unified / ("mso-test-" + std::to_string(::getpid())), task = top / "task_0";
  if (::mkdir(top.c_str(), 0755) != 0) GTEST_SKIP() << "may not make cgroups here";
  // Without the cpuset controller from above, what comes last fails.
  ASSERT_EQ(::mkdir(task.c_str(), 0755), 0);
  EXPECT_THROW(make_decoder_cgroups(mounts, task, "mso_0", {0}, {0}, 12345), Error);
  const auto text = [&](const char* file) {
    std::ifstream in(task / file);
    std::string line;
    std::getline(in, line);
    return line;
  };
  EXPECT_EQ(text("cgroup.max.depth"), "max");
  EXPECT_EQ(text("cgroup.max.descendants"), "max");
  EXPECT_EQ(text("cgroup.type"), "domain");
  EXPECT_FALSE(fs::exists(task / "mso_0.image"));
  // The same with children of another task there, whose CPUs are refused: those stay as they are.
  std::ofstream(top / "cgroup.subtree_control") << "+cpuset" << std::flush;
  make_decoder_cgroups(mounts, task, "mso_0", {0}, {0}, 12345, 2);
  EXPECT_THROW(make_decoder_cgroups(mounts, task, "mso_1", {100000}, {0}, 12345, 2), Error);
  EXPECT_EQ(text("cgroup.max.depth"), "1");
  EXPECT_EQ(text("cgroup.max.descendants"), "4");
  EXPECT_EQ(text("cgroup.subtree_control"), "cpuset");
  struct stat info = {};
  ASSERT_EQ(::stat((task / "cgroup.procs").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12345u);
  EXPECT_TRUE(fs::exists(task / "mso_0.image"));
  EXPECT_FALSE(fs::exists(task / "mso_1.image"));
  EXPECT_TRUE(remove_all_of(task, "mso_0", 2).empty());
  EXPECT_EQ(::rmdir(task.c_str()), 0);
  EXPECT_EQ(::rmdir(top.c_str()), 0);
}

TEST(Cgroups, NoneMountedIsAnError) {
  EXPECT_THROW(make_decoder_cgroups({}, "/x", "mso_0", {0}, {0}, 0), Error);
}

}  // namespace
}  // namespace mso
