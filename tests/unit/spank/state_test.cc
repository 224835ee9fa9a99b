// What is kept on a node: names, state files, sizes, processes, squeue's answers, a tmpfs's memory. More mounts:
// tests/slurm.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>

#include "base/error.h"
#include "spank/confirmation.h"
#include "spank/job_state.h"
#include "spank/log_line.h"
#include "spank/orphans.h"
#include "spank/snapshot_mount.h"
#include "spank/tear_down.h"
#include "spank/tmpfs.h"

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
  state.ready = false;
  state.held = true;
  EXPECT_EQ(parse_job_state(format_job_state(state)), state);
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

// A made-up /proc.
class Processes : public testing::Test {
 protected:
  Processes() { std::filesystem::remove_all(proc_); }
  ~Processes() override { std::filesystem::remove_all(proc_); }
  std::filesystem::path add(const char* pid, uid_t user, const char* cgroup, const char* program,
                            const char* title = "program") {
    std::filesystem::create_directories(proc_ / pid / "task");
    std::ofstream(proc_ / pid / "status") << "Name:\tx\nUmask:\t0022\nUid:\t" << user << "\t0\t0\t0\n";
    std::ofstream(proc_ / pid / "cgroup") << cgroup;
    std::ofstream(proc_ / pid / "cmdline") << title;
    if (*program) std::filesystem::create_symlink(program, proc_ / pid / "exe");
    return proc_ / pid;
  }
  const uid_t root_ = ::getuid(), user_ = root_ + 1000;
  const std::filesystem::path proc_ =
      std::filesystem::path(testing::TempDir()) / ("mso-proc-" + std::to_string(::getpid()));
};

TEST_F(Processes, OfAJobByCgroupAlone) {
  add("101", user_, "4:cpuset:/slurm/uid_1/job_12/step_0\n0::/\n", "/usr/bin/sleep");
  add("102", root_, "0::/system.slice/slurmstepd.scope/job_12/step_0/slurm\n", "/usr/sbin/slurmstepd",
      "slurmstepd: [12.0]");
  add("103", user_, "4:cpuset:/slurm/uid_1/job_13/step_0\n", "/usr/bin/sleep");
  EXPECT_THAT(processes_of_job(12, "n1", proc_), ElementsAre(101));
  EXPECT_TRUE(has_step_daemon(12, proc_));
  EXPECT_FALSE(has_step_daemon(1, proc_));
  EXPECT_FALSE(has_step_daemon(120, proc_));
}

TEST_F(Processes, AreAliveWhileAnyThreadIs) {
  // v1 says "/" of a first thread that has ended.
  const auto thread = [&](const std::filesystem::path& process, const char* id, const char* cgroup, bool lives) {
    std::filesystem::create_directories(process / "task" / id);
    std::ofstream(process / "task" / id / "cgroup") << cgroup;
    if (lives) std::filesystem::create_symlink("/usr/bin/python3", process / "task" / id / "exe");
  };
  const auto first_has_ended = add("104", user_, "4:cpuset:/\n", "");
  thread(first_has_ended, "104", "4:cpuset:/\n", false);
  thread(first_has_ended, "105", "4:cpuset:/slurm/uid_1/job_12/step_0\n", true);
  const auto dead = add("106", user_, "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", "");
  thread(dead, "106", "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n", false);
  EXPECT_THAT(processes_of_job(12, "n1", proc_), ElementsAre(104));
}

TEST_F(Processes, AUserCannotPassForSlurmsDaemon) {
  // The folder of a process that cannot be dumped belongs to root, as all of these do here.
  add("107", user_, "4:cpuset:/slurm/uid_1/job_12/step_0\n", "/home/user/slurmstepd", "slurmstepd: [12.0]");
  EXPECT_THAT(processes_of_job(12, "n1", proc_), ElementsAre(107));
  EXPECT_FALSE(has_step_daemon(12, proc_));
  // Replaced by a newer version since it was started.
  add("108", root_, "0::/\n", "/usr/sbin/slurmstepd (deleted)", "slurmstepd: [12.0]");
  EXPECT_TRUE(has_step_daemon(12, proc_));
}

TEST_F(Processes, AJobIsAtWorkWhereAnotherStepOrProcessOfItsUserIs) {
  EXPECT_FALSE(is_at_work(12, "n1", user_, proc_));
  add(std::to_string(::getpid()).c_str(), root_, "0::/\n", "/usr/sbin/slurmstepd", "slurmstepd: [12.1]");  // this one
  add("109", root_, "0::/\n", "/usr/sbin/slurmstepd", "slurmstepd: [12.extern]");
  add("110", root_, "4:cpuset:/slurm/uid_1/job_12/step_extern\n", "/usr/bin/sleep");
  add("111", user_ + 1, "4:cpuset:/slurm/uid_1/job_12/step_0\n", "/usr/bin/sleep");  // somebody else's trick
  add("112", user_, "4:cpuset:/slurm/uid_1/job_13/step_0\n", "/usr/bin/sleep");
  EXPECT_FALSE(is_at_work(12, "n1", user_, proc_));
  add("113", user_, "4:cpuset:/slurm/uid_1/job_12/step_extern\n", "/usr/bin/sleep");
  EXPECT_TRUE(is_at_work(12, "n1", user_, proc_));
  EXPECT_FALSE(is_at_work(12, "n1", user_ + 2, proc_));
  add("114", root_, "0::/\n", "/usr/sbin/slurmstepd-wlm", "slurmstepd: [12.batch]");  // Debian's name
  EXPECT_TRUE(is_at_work(12, "n1", user_ + 2, proc_));
}

TEST(Squeue, InDoubtAJobLives) {
  EXPECT_EQ(read_squeue(7, 0, "7 RUNNING\n", ""), JobKnown::kActive);
  EXPECT_EQ(read_squeue(7, 0, "7 PENDING\n", ""), JobKnown::kActive);  // requeued
  EXPECT_EQ(read_squeue(7, 0, "7 COMPLETING\n", ""), JobKnown::kActive);
  EXPECT_EQ(read_squeue(7, 0, "7 SOMETHING_NEW\n", ""), JobKnown::kActive);
  for (const char* over : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"})
    EXPECT_EQ(read_squeue(7, 0, "7 " + std::string(over) + "\n", ""), JobKnown::kGone) << over;
  // An array: each task by its own number.
  EXPECT_EQ(read_squeue(7, 0, "8 RUNNING\n7 COMPLETED\n9 PENDING\n", ""), JobKnown::kGone);
  EXPECT_EQ(read_squeue(7, 0, "8 COMPLETED\n7 RUNNING\n", ""), JobKnown::kActive);
  EXPECT_EQ(read_squeue(7, 0, "8 COMPLETED\n", ""), JobKnown::kActive);
  // No line is no answer: all states were asked for.
  EXPECT_EQ(read_squeue(7, 0, "", ""), JobKnown::kUnknown);
  EXPECT_EQ(read_squeue(7, 0, "\n", ""), JobKnown::kUnknown);
  EXPECT_EQ(read_squeue(7, 0, "rubbish", ""), JobKnown::kUnknown);
  EXPECT_EQ(read_squeue(7, 1, "", "slurm_load_jobs error: Invalid job id specified\n"), JobKnown::kGone);
  EXPECT_EQ(read_squeue(7, 1, "", "Unable to contact slurm controller"), JobKnown::kUnknown);
  EXPECT_EQ(read_squeue(7, 127, "", ""), JobKnown::kUnknown);
  EXPECT_EQ(ask_controller(1, "/nonexistent/squeue"), JobKnown::kUnknown);
  EXPECT_EQ(ask_controller(1, "/bin/true"), JobKnown::kUnknown);
}

TEST_F(RunFolder, SqueueSeesNothingOfThisProcessesEnvironment) {
  std::ofstream(path_ / "squeue") << "#!/bin/sh\n/usr/bin/env >" << (path_ / "seen").string()
                                  << "\necho 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n";
  ::chmod((path_ / "squeue").c_str(), 0755);
  ::setenv("SQUEUE_USERS", "nobody", 1);
  ::setenv("SLURM_CONF", "/somewhere/slurm.conf", 1);
  EXPECT_EQ(ask_controller(12, path_ / "squeue"), JobKnown::kGone);
  ::unsetenv("SQUEUE_USERS");
  ::unsetenv("SLURM_CONF");
  std::ifstream in(path_ / "seen");
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) names.insert(line.substr(0, line.find('=')));
  for (const char* shells : {"PWD", "OLDPWD", "_", "SHLVL"}) names.erase(shells);
  EXPECT_THAT(names, ElementsAre("PATH", "SLURM_CONF"));
}

// A process that hangs in a write to `file`, which keeps the file locked: no other can change or remove it. 0 where
// the kernel has no userfaultfd.
pid_t hanging_writer(const std::filesystem::path& file) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return 0;
  const pid_t writer = ::fork();
  if (writer == 0) {
    const int fault = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api = {};
    api.api = UFFD_API;
    void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register region = {};
    region.range = {reinterpret_cast<uintptr_t>(memory), 4096};
    region.mode = UFFDIO_REGISTER_MODE_MISSING;
    const int fd = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
    if (fault < 0 || ::ioctl(fault, UFFDIO_API, &api) != 0 || ::ioctl(fault, UFFDIO_REGISTER, &region) != 0 || fd < 0)
      ::_exit(1);
    if (::fork() == 0) {  // says so when the other hangs
      pollfd event = {fault, POLLIN, 0};
      const bool hangs = ::poll(&event, 1, 20000) == 1;
      if (hangs && ::write(ready[1], "x", 1) != 1) ::_exit(1);
      ::_exit(0);
    }
    ::close(ready[1]);
    ::_exit(::write(fd, memory, 4096) < 0 ? 1 : 0);
  }
  ::close(ready[1]);
  char said;
  const bool hangs = ::read(ready[0], &said, 1) == 1;
  ::close(ready[0]);
  if (hangs) return writer;
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  return 0;
}

// As root in mount namespaces of their own.
TEST(Tmpfs, GivesItsMemoryBackWhileFilesAreOpen) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::string name = testing::TempDir() + "/mso-tmpfs-XXXXXX";
  const std::filesystem::path point = std::filesystem::canonical(::mkdtemp(name.data()));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(kTmpfsSource, point.c_str(), "tmpfs", MS_NOSUID, "size=8388608") != 0)
      ::_exit(255);
    const auto write = [](int fd, size_t bytes) {
      const std::string text(bytes, 'x');
      return ::write(fd, text.data(), bytes) == static_cast<ssize_t>(bytes);
    };
    const auto fail = [](int line) { ::_exit(line % 250 + 1); };
    const auto upper = upper_mount(point);
    if (!upper || !upper->of_plugin) fail(__LINE__);
    const FileDescriptor tmpfs = hold_tmpfs(point, upper->device);
    if (!tmpfs.valid()) ::_exit(255);  // before Linux 5.2
    if (hold_tmpfs(point, upper->device + 1).valid()) fail(__LINE__);
    if (total_bytes(tmpfs) != 8388608 || !resize_tmpfs(tmpfs, 16777216, 1024) || total_bytes(tmpfs) != 16777216)
      fail(__LINE__);
    // Deep folders, links out, a pipe, a device, a file system inside, an open file with a name.
    std::filesystem::path deep = point;
    for (int i = 0; i < 60; ++i) deep /= "d";
    std::filesystem::create_directories(deep);
    std::ofstream(deep / "file") << std::string(100000, 'y');
    std::filesystem::create_symlink("/etc", point / "link");
    ::mkfifo((point / "pipe").c_str(), 0600);
    std::filesystem::create_directory(point / "other");
    if (::mount("x", (point / "other").c_str(), "tmpfs", 0, "size=1048576") != 0) fail(__LINE__);
    std::ofstream(point / "other" / "kept") << "kept";
    FileDescriptor open(::open((point / "open").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!write(open.get(), 4 << 20) || used_bytes(tmpfs) < (4 << 20)) fail(__LINE__);
    // A file that has no name any more cannot be found: it is counted, and no more can be had.
    FileDescriptor nameless(::open((point / "gone").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!write(nameless.get(), 1 << 20) || ::unlink((point / "gone").c_str()) != 0) fail(__LINE__);
    if (empty_tmpfs(tmpfs, 20) != (1 << 20)) fail(__LINE__);
    if (write(open.get(), 1 << 20)) fail(__LINE__);
    if (!std::filesystem::exists(point / "other" / "kept") || !std::filesystem::exists("/etc/passwd")) fail(__LINE__);
    nameless.reset();
    if (empty_tmpfs(tmpfs, 20) != 0 || used_bytes(tmpfs) != 0 || total_bytes(tmpfs) > 4096) fail(__LINE__);
    // A file that is kept locked: its writer waits for memory that nobody brings.
    if (!resize_tmpfs(tmpfs, 16777216, 1024)) fail(__LINE__);
    std::ofstream(point / "locked") << std::string(1 << 20, 'z');
    const pid_t writer = hanging_writer(point / "locked");
    if (writer > 0) {
      const std::string lock = point.string() + ".lock";
      FileDescriptor locked(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (::flock(locked.get(), LOCK_EX) != 0) fail(__LINE__);
      if (empty_tmpfs(tmpfs, 0.5) < (1 << 20)) fail(__LINE__);
      // What is left behind holds nothing of this process's.
      locked = FileDescriptor(::open(lock.c_str(), O_RDWR | O_CLOEXEC));
      ::unlink(lock.c_str());
      if (::flock(locked.get(), LOCK_EX | LOCK_NB) != 0) fail(__LINE__);
      ::kill(writer, SIGKILL);
      ::waitpid(writer, nullptr, 0);
      if (empty_tmpfs(tmpfs, 20) != 0) fail(__LINE__);
    }
    // Covered by something else: that is what is seen, and not taken for the plugin's.
    if (::mount("mso", point.c_str(), "ramfs", 0, nullptr) != 0) fail(__LINE__);
    const auto covered = upper_mount(point);
    if (!covered || covered->tmpfs || covered->of_plugin || hold_tmpfs(point, upper->device).valid()) fail(__LINE__);
    if (upper_mount(point / "none") || upper_mount("/nonexistent")) fail(__LINE__);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(point);
  if (WEXITSTATUS(status) == 255) GTEST_SKIP() << "no mounts can be made here, or Linux is older than 5.2";
  EXPECT_EQ(status, 0) << "failed in line " << WEXITSTATUS(status) - 1 << " (modulo 250)";
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
  const Confirmations found = box->collect(3, 0.3);
  EXPECT_THAT(found.nodes, ElementsAre(NodeOfStep{7, 0, "n1"}, NodeOfStep{7, 1, "n2"}));
  EXPECT_EQ(found.strangers, 1u);
  for (const char* bad : {"", ":", "x:y", "1", "99999:a"})
    EXPECT_FALSE(send_confirmation("127.0.0.1", bad, {7, 0, "n"}, 0.2)) << bad;
  EXPECT_FALSE(send_confirmation("not an address", box->ticket(), {7, 0, "n"}, 0.2));
}

// Connects as anybody can, and says something or nothing.
FileDescriptor stranger(const ConfirmationBox& box, std::string_view says) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(box.ticket())));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return FileDescriptor();
  if (!says.empty() && ::send(fd.get(), says.data(), says.size(), MSG_NOSIGNAL) < 0) return FileDescriptor();
  return fd;
}

TEST(Confirmation, PeersThatSayNothingKeepNobodyFromBeingHeard) {
  auto box = ConfirmationBox::open({0, 0});
  ASSERT_TRUE(box);
  // More than are heard at the same time, before and after the good ones.
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(stranger(*box, i % 3 ? "" : "half a li"));
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 0, "n1"}, 1));
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(*box, ""));
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 1, "n2"}, 1));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(box->collect(2, 60).nodes, ElementsAre(NodeOfStep{7, 0, "n1"}, NodeOfStep{7, 1, "n2"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Confirmation, StrangersAreCountedAndTheDeadlineHolds) {
  auto box = ConfirmationBox::open({0, 0});
  ASSERT_TRUE(box);
  EXPECT_EQ(box->collect(1, 0.05).strangers, 0u);
  std::vector<FileDescriptor> silent;
  for (const std::string& says : {std::string(), std::string("x"), std::string("rubbish\n"), std::string(5000, 'y'), box->ticket() + "\n"})
    silent.push_back(stranger(*box, says));
  silent.push_back(stranger(*box, "x"));
  silent.back().reset();  // gone again
  EXPECT_TRUE(send_confirmation("127.0.0.1", box->ticket(), {7, 0, "n1"}, 1));
  const Confirmations found = box->collect(2, 0.3);
  EXPECT_EQ(found.nodes.size(), 1u);
  EXPECT_EQ(found.strangers, 6u);
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
