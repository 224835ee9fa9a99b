// What is kept on a node: names, state files, sizes, cgroup paths, squeue's answers, subprocesses. Mounts:
// tests/slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "spank/confirmation.h"
#include "spank/job_state.h"
#include "spank/log_line.h"
#include "spank/orphans.h"
#include "spank/snapshot_mount.h"
#include "spank/subprocess.h"
#include "spank/tear_down.h"

namespace mso {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RunFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/mso-run-XXXXXX";
    path_ = ::mkdtemp(name.data());
    ::chmod(path_.c_str(), 0755);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::filesystem::path path_;
};

TEST(JobNames, OnlyTheOneForm) {
  EXPECT_EQ(format_job_name({12, 3}), "12.3");
  EXPECT_EQ(parse_job_name("12.3"), (JobName{12, 3}));
  for (const char* bad :
       {"", "12", "12.", ".3", "012.3", "12.03", "-1.0", "12.3.4", "99999999999.0", "12.x", " 12.3", "lock"})
    EXPECT_EQ(parse_job_name(bad), std::nullopt) << bad;
}

TEST(JobStates, GoThroughAndSurviveLinesOfALaterVersion) {
  JobState state{1000, uint64_t{1} << 30, true, 1764000000, "n1"};
  EXPECT_EQ(parse_job_state(format_job_state(state)), state);
  EXPECT_EQ(parse_job_state(format_job_state(state) + "colour blue\n"), state);
  for (const char* bad :
       {"", "mso-state 2\nuid 1\nphase ready\n", "mso-state 1\n", "mso-state 1\nuid x\nphase ready\n",
        "mso-state 1\nuid -1\nphase ready\n", "mso-state 1\nuid\n"})
    EXPECT_EQ(parse_job_state(bad), std::nullopt) << bad;
}

TEST_F(RunFolder, IsRootsAlone) {
  EXPECT_TRUE(RunDirectory::open(path_, false));
  EXPECT_FALSE(RunDirectory::open(path_ / "none", false));
  ASSERT_TRUE(RunDirectory::open(path_ / "made", true));
  struct stat info;
  ::stat((path_ / "made").c_str(), &info);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
  ::chmod(path_.c_str(), 0777);
  EXPECT_THROW(RunDirectory::open(path_, true), Error);
  ::chmod(path_.c_str(), 0755);
  std::filesystem::create_symlink(path_, path_ / "link");
  EXPECT_THROW(RunDirectory::open(path_ / "link", false), Error);
  std::ofstream(path_ / "file") << "x";
  EXPECT_THROW(RunDirectory::open(path_ / "file", true), Error);
}

TEST_F(RunFolder, KeepsJobs) {
  const auto run = RunDirectory::open(path_, false);
  std::filesystem::create_directory(path_ / "strange");
  run->write_state({7, 0}, {1, 2, false, 3, "n"});
  run->write_state({7, 1}, {1, 2, true, 3, "n"});
  run->write_state({12, 0}, {1, 0, true, 3, "n"});
  EXPECT_THAT(run->jobs(), ElementsAre(JobName{7, 0}, JobName{7, 1}, JobName{12, 0}));
  EXPECT_THAT(run->jobs(7), ElementsAre(JobName{7, 0}, JobName{7, 1}));
  EXPECT_TRUE(run->read_state({7, 1})->ready);
  EXPECT_FALSE(run->read_state({8, 0}));
  std::ofstream(path_ / "7.1" / "state") << "rubbish";
  EXPECT_FALSE(run->read_state({7, 1}));
  // Whatever an older or newer plugin left in there goes.
  std::filesystem::create_directories(path_ / "7.1" / "future" / "deep");
  std::ofstream(path_ / "7.1" / "future" / "deep" / "file") << "x";
  std::filesystem::create_symlink("/etc", path_ / "7.1" / "future" / "link");
  remove_job_folder(*run, {7, 1});
  EXPECT_FALSE(std::filesystem::exists(path_ / "7.1"));
  EXPECT_TRUE(std::filesystem::exists("/etc/passwd"));
  remove_job_folder(*run, {99, 0});
}

TEST_F(RunFolder, LinksInTheWayAreNotFollowed) {
  const auto run = RunDirectory::open(path_, false);
  std::ofstream(path_ / "victim") << "precious";
  std::filesystem::create_directory(path_ / "5.0");
  std::filesystem::create_symlink(path_ / "victim", path_ / "5.0" / "state.new");
  EXPECT_THROW(run->write_state({5, 0}, {}), Error);
  std::ifstream victim(path_ / "victim");
  std::string text;
  victim >> text;
  EXPECT_EQ(text, "precious");
  std::filesystem::create_symlink("/tmp", path_ / "6.0");
  remove_job_folder(*run, {6, 0});
  EXPECT_TRUE(std::filesystem::exists("/tmp"));
  EXPECT_FALSE(std::filesystem::is_symlink(path_ / "6.0"));
}

TEST_F(RunFolder, TheLockHasADeadlineAndAName) {
  const auto run = RunDirectory::open(path_, false);
  {
    const StateLock first(*run, 1, "job 12");
    try {
      const StateLock second(*run, 0.05, "job 13");
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("job 12"));
    }
  }
  EXPECT_NO_THROW(StateLock(*run, 0.05, "job 13"));
}

TEST_F(RunFolder, SweepsOnlyWhatIsSurelyDead) {
  PluginArguments arguments;
  arguments.run_dir = path_;
  const auto run = RunDirectory::open(path_, false);
  for (uint32_t job : {999001, 999002, 999003, 999004}) run->write_state({job, 0}, {0, 0, true, 0, "n"});
  run->write_state({999005, 0}, {0, 0, false, std::time(nullptr), "n"});
  const auto ask = [](uint32_t job) {
    return job == 999001 ? JobKnown::kActive : job == 999002 ? JobKnown::kUnknown : JobKnown::kGone;
  };
  EXPECT_EQ(sweep_dead_jobs(arguments, ask, 999003, "test"), 1u);
  EXPECT_THAT(run->jobs(),
              ElementsAre(JobName{999001, 0}, JobName{999002, 0}, JobName{999003, 0}, JobName{999005, 0}));
  arguments.run_dir = path_ / "none";
  EXPECT_EQ(sweep_dead_jobs(arguments, ask, 0, "test"), 0u);
}

constexpr uint64_t kGiB = uint64_t{1} << 30, kMiB = uint64_t{1} << 20;

TEST(SnapshotSizes, WhatIsAskedIsGivenOrRefused) {
  PluginArguments arguments;
  SnapshotRoom room;
  room.node_memory = 64 * kGiB;
  room.asked = 10 * kGiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 10 * kGiB);
  room.job_memory = 10 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("job's memory"));
  EXPECT_TRUE(plan_snapshot_size(room, arguments).fault_of_user);
  room.job_memory = 11 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, IsEmpty());
  room.others = 22 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, IsEmpty());
  room.others += 1 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("other jobs"));
  EXPECT_FALSE(plan_snapshot_size(room, arguments).fault_of_user);
  room.others = 0;
  arguments.snapshot_max = 9 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("administrator"));
  room.asked = kMaxSnapshotBytes;
  room.job_memory = 0;
  arguments.snapshot_max = kMaxSnapshotBytes;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("all jobs of a node"));
  room.asked = 0;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 0u);
  room.asked = kMiB + 1;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, kMiB + 4096);
}

TEST(SnapshotSizes, AutoTakesWhatThereIs) {
  PluginArguments arguments;
  SnapshotRoom room;
  room.node_memory = 64 * kGiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, kGiB);
  room.job_memory = 2 * kGiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, kGiB / 2);
  arguments.snapshot_node_max = 10 * kGiB;
  room.others = 10 * kGiB - 100 * kMiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 100 * kMiB);
  room.others = 10 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("no room"));
  room.present = 64 * kMiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 64 * kMiB);
}

TEST(SnapshotSizes, NeverShrinksAndGrowsWithinTheCaps) {
  PluginArguments arguments;
  arguments.snapshot_node_max = 4 * kGiB;
  SnapshotRoom room;
  room.node_memory = 64 * kGiB;
  room.present = 2 * kGiB;
  room.asked = kGiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 2 * kGiB);
  room.asked = 0;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 2 * kGiB);
  room.asked = 3 * kGiB;
  EXPECT_EQ(plan_snapshot_size(room, arguments).bytes, 3 * kGiB);
  room.others = 2 * kGiB;
  EXPECT_THAT(plan_snapshot_size(room, arguments).refusal, HasSubstr("other jobs"));
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

TEST(Cgroups, ProcessesAreFoundInProc) {
  const std::filesystem::path proc = std::filesystem::path(testing::TempDir()) / "mso-proc";
  std::filesystem::remove_all(proc);
  const auto process = [&](const char* pid, const char* cgroup, const char* program) {
    std::filesystem::create_directories(proc / pid);
    std::ofstream(proc / pid / "cgroup") << cgroup;
    std::filesystem::create_symlink(program, proc / pid / "exe");
    std::ofstream(proc / pid / "cmdline") << "slurmstepd: [12.0]";
  };
  process("101", "4:cpuset:/slurm/uid_1/job_12/step_0\n0::/\n", "/usr/bin/sleep");
  process("102", "0::/system.slice/slurmstepd.scope/job_12/step_0/slurm\n", "/usr/sbin/slurmstepd");
  process("103", "4:cpuset:/slurm/uid_1/job_13/step_0\n", "/usr/bin/sleep");
  EXPECT_THAT(processes_of_job(12, "n1", proc), ElementsAre(101));
  EXPECT_TRUE(has_step_daemon(12, proc));
  EXPECT_FALSE(has_step_daemon(1, proc));
}

TEST(Squeue, InDoubtAJobLives) {
  EXPECT_EQ(read_squeue(0, "RUNNING\n", ""), JobKnown::kActive);
  EXPECT_EQ(read_squeue(0, "", ""), JobKnown::kGone);
  EXPECT_EQ(read_squeue(1, "", "slurm_load_jobs error: Invalid job id specified\n"), JobKnown::kGone);
  EXPECT_EQ(read_squeue(1, "", "Unable to contact slurm controller"), JobKnown::kUnknown);
  EXPECT_EQ(read_squeue(127, "", ""), JobKnown::kUnknown);
  EXPECT_EQ(ask_controller(1, "/nonexistent/squeue"), JobKnown::kUnknown);
  EXPECT_EQ(ask_controller(1, "/bin/true"), JobKnown::kGone);
}

TEST(Subprocess, OutputCodesAndDeadlines) {
  Outcome outcome = run_program({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, 5, 100);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.output, "out\n");
  EXPECT_EQ(outcome.errors, "err\n");
  outcome = run_program({"/bin/sh", "-c", "head -c 100000 /dev/zero; kill -9 $$"}, 5, 1000);
  EXPECT_EQ(outcome.output.size(), 1000u);
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_TRUE(run_program({"/bin/sh", "-c", "sleep 60"}, 0.2, 100).timed_out);
  EXPECT_TRUE(run_program({"/bin/sh", "-c", "exec >&- 2>&-; sleep 60"}, 0.2, 100).timed_out);
  EXPECT_NE(run_program({"/nonexistent"}, 1, 100).not_started, 0);
}

TEST(LogLines, AreOneLineWhateverIsInThem) {
  EXPECT_EQ(LogLine("x").add("a", "plain").add("b", "two words").add("c", uint64_t{7}).text(),
            "mso event=x a=plain b=\"two words\" c=7");
  EXPECT_EQ(LogLine("x").add("a", "new\nline\"=").text(), "mso event=x a=\"new?line'=\"");
  EXPECT_LT(LogLine("x").add("a", std::string(10000, 'y')).text().size(), 400u);
}

TEST(Confirmation, ArrivesAndIsCounted) {
  auto box = ConfirmationBox::open({0, 0});
  ASSERT_TRUE(box);
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 0, "n1"}, 1));
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 1, "n2"}, 1));
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 1, "n2"}, 1));
  std::string forged = box->ticket();
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_TRUE(send_confirmation("127.0.0.1", forged, {7, 2, "n3"}, 1));
  EXPECT_THAT(box->collect(3, 0.3), ElementsAre(NodeOfStep{7, 0, "n1"}, NodeOfStep{7, 1, "n2"}));
  for (const char* bad : {"", ":", "x:y", "1", "99999:a"})
    EXPECT_FALSE(send_confirmation("127.0.0.1", bad, {7, 0, "n"}, 0.2)) << bad;
  EXPECT_FALSE(send_confirmation("not an address", box->ticket(), {7, 0, "n"}, 0.2));
}

TEST(Confirmation, PortsAndHostLists) {
  EXPECT_EQ(srun_ports("ClusterName=x\n srunportrange = 60001-63000 # y\n"),
            (std::pair<uint16_t, uint16_t>{60001, 63000}));
  for (const char* bad :
       {"", "#SrunPortRange=1-2", "SrunPortRange=5-4", "SrunPortRange=0-70000", "SrunPortRange=x"})
    EXPECT_EQ(srun_ports(bad), (std::pair<uint16_t, uint16_t>{0, 0})) << bad;
  auto box = ConfirmationBox::open({42000, 42999});
  ASSERT_TRUE(box);
  EXPECT_THAT(box->ticket(), testing::StartsWith("42"));
  EXPECT_THAT(expand_host_list("n1"), ElementsAre("n1"));
  EXPECT_THAT(expand_host_list("n[1-3,07],m,r[08-10]x"),
              ElementsAre("n1", "n2", "n3", "n07", "m", "r08x", "r09x", "r10x"));
  EXPECT_THAT(expand_host_list("a[1-2]b[1-2]"), ElementsAre("a[1-2]b[1-2]"));
  EXPECT_THAT(expand_host_list("n[x-y]"), ElementsAre("n[x-y]"));
  EXPECT_LE(expand_host_list("n[0-4294967295]").size(), 100000u);
  EXPECT_THAT(expand_host_list(""), IsEmpty());
}

}  // namespace
}  // namespace mso
