// Threads go where the variables say; what the kernel refuses is said, not fatal.
#include "node/thread_place.h"

#include <gtest/gtest.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "made_up_node.h"

namespace mso {
namespace {

class ThreadPlace : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {kImageCpusVariable, kVideoCpusVariable, kComputeCpusVariable, kImageCgroupVariable,
                             kVideoCgroupVariable, kIoPriorityVariable, kDecoderPriorityVariable})
      ::unsetenv(name);
  }
  // In a thread of its own: the mask of the test itself stays.
  template <typename Body>
  static void in_thread(Body body) {
    std::thread thread(body);
    thread.join();
  }
};

TEST_F(ThreadPlace, NothingSetNothingDone) {
  const CpuSet before = current_cpus();
  ASSERT_FALSE(before.empty());
  for (ThreadClass kind : {ThreadClass::kCompute, ThreadClass::kImage, ThreadClass::kVideo}) {
    EXPECT_EQ(place_this_thread(kind), "");
    EXPECT_EQ(decoder_cpus_given(kind), 0);
  }
  EXPECT_EQ(current_cpus(), before);
}

TEST_F(ThreadPlace, AThreadRunsOnItsSet) {
  const CpuSet all = current_cpus();
  const std::string last = std::to_string(all.back());
  ::setenv(kImageCpusVariable, last.c_str(), 1);
  ::setenv(kComputeCpusVariable, format_cpu_list(all).c_str(), 1);
  EXPECT_EQ(decoder_cpus_given(ThreadClass::kImage), 1);
  in_thread([&] {
    EXPECT_EQ(place_this_thread(ThreadClass::kImage), "");
    EXPECT_EQ(current_cpus(), CpuSet{all.back()});
    in_thread([&] {  // a thread starts with its maker's set and finds its own again
      EXPECT_EQ(current_cpus(), CpuSet{all.back()});
      EXPECT_EQ(place_this_thread(ThreadClass::kCompute), "");
      EXPECT_EQ(current_cpus(), all);
    });
  });
  EXPECT_EQ(current_cpus(), all);
}

TEST_F(ThreadPlace, WhatIsRefusedIsSaid) {
  const CpuSet all = current_cpus();
  for (const char* bad : {"8000", "x", "3-1"}) {
    ::setenv(kImageCpusVariable, bad, 1);
    in_thread([&] {
      EXPECT_NE(place_this_thread(ThreadClass::kImage).find(std::string("MSO_CPUS_IMAGE ") + bad), std::string::npos) << bad;
      EXPECT_EQ(current_cpus(), all);
    });
  }
  ::unsetenv(kImageCpusVariable);
  ::setenv(kImageCgroupVariable, "/nothing/there", 1);
  ::setenv(kIoPriorityVariable, "rt:0", 1);
  in_thread([] {
    const std::string problem = place_this_thread(ThreadClass::kImage);
    EXPECT_NE(problem.find("/nothing/there"), std::string::npos);
    EXPECT_NE(problem.find("rt:0"), std::string::npos);
    EXPECT_EQ(place_this_thread(ThreadClass::kCompute), "");  // decoders only
  });
}

TEST_F(ThreadPlace, IoPriorityIsSet) {
  in_thread([] {
    if (!set_io_priority("be:6")) GTEST_SKIP() << "ioprio_set is refused here";
    EXPECT_EQ(::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0), IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 6));
    for (const char* bad : {"", "be:8", "be:", "be:66", "rt:1", "none"}) EXPECT_FALSE(set_io_priority(bad)) << bad;
  });
}

TEST_F(ThreadPlace, PriorityOfDecodersIsSet) {
  auto nice_now = [] { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); };
  in_thread([&] {  // down is always permitted
    const int before = nice_now();
    ASSERT_TRUE(set_thread_priority("normal"));
    EXPECT_EQ(nice_now(), before);
    ASSERT_TRUE(set_thread_priority("nice:19"));
    EXPECT_EQ(nice_now(), 19);
    for (const char* bad : {"", "nice", "nice:", "nice:20", "nice:-21", "nice:1x", "rr:0", "rr:50", "rr:", "fifo:1", ":1", "high"}) {
      errno = 0;
      EXPECT_FALSE(set_thread_priority(bad)) << bad;
      EXPECT_EQ(errno, EINVAL) << bad;
    }
    EXPECT_EQ(nice_now(), 19);
  });
  ::setenv(kDecoderPriorityVariable, "nice:17", 1);
  in_thread([&] {
    EXPECT_EQ(place_this_thread(ThreadClass::kImage), "");
    EXPECT_EQ(nice_now(), 17);
  });
  in_thread([&] {  // not for what computes
    const int before = nice_now();
    EXPECT_EQ(place_this_thread(ThreadClass::kCompute), "");
    EXPECT_EQ(nice_now(), before);
  });
  ::setenv(kDecoderPriorityVariable, "rr:1000", 1);
  in_thread([&] { EXPECT_NE(place_this_thread(ThreadClass::kVideo).find("rr:1000"), std::string::npos); });
}

// What decoders of an ordinary user get: a child permits `limit` as root, gives up root, and places itself. Its nice then, or 100 + what failed.
int nice_of_a_user(int limit, bool with_cpus, int again = 0) {
  const pid_t child = ::fork();
  if (child == 0) {
    int failed = 0;
    if (with_cpus) ::setenv(kImageCpusVariable, format_cpu_list(current_cpus()).c_str(), 1);
    if (::setpriority(PRIO_PROCESS, 0, 0) != 0) failed |= 1;
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NICE, &none) != 0 || (limit < 0 && !permit_nice(limit))) failed |= 1;
    if (again < 0 && !permit_nice(again)) failed |= 1;
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) failed |= 1;
    if (place_this_thread(ThreadClass::kImage) != "") failed |= 2;  // what is not permitted is no fault
    const int got = ::getpriority(PRIO_PROCESS, 0);
    // Nothing beyond what root permitted.
    if (limit > -20 && ::setpriority(PRIO_PROCESS, 0, limit - 1) == 0) failed |= 4;
    if (limit > -20 && permit_nice(limit - 1)) failed |= 8;
    ::_exit(failed ? 100 + failed : got + 40);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 999;
  return WEXITSTATUS(status) > 100 ? WEXITSTATUS(status) : WEXITSTATUS(status) - 40;
}

TEST_F(ThreadPlace, AUsersDecodersAreRaisedAsFarAsRootPermits) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const int other = [] {  // whether root may at all here
    const pid_t child = ::fork();
    if (child == 0) ::_exit(permit_nice(-1) && ::setgid(65534) == 0 && ::setuid(65534) == 0 ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }();
  if (other != 0) GTEST_SKIP() << "limits or users cannot be changed here";
  EXPECT_EQ(nice_of_a_user(0, true), 0);
  EXPECT_EQ(nice_of_a_user(-3, true), -3);
  EXPECT_EQ(nice_of_a_user(-10, true), -10);
  EXPECT_EQ(nice_of_a_user(-20, true), -10);   // no further than the default
  EXPECT_EQ(nice_of_a_user(-20, false), 0);    // no CPUs of their own: left alone
  EXPECT_EQ(nice_of_a_user(-7, true, -3), -7);  // never lowered
  EXPECT_FALSE(permit_nice(-21));
  EXPECT_FALSE(permit_nice(20));
}

TEST_F(ThreadPlace, RealTimeIsNotInherited) {
  in_thread([] {
    if (!set_thread_priority("rr:1")) GTEST_SKIP() << "SCHED_RR is refused here";
    EXPECT_EQ(::sched_getscheduler(0), SCHED_RR | SCHED_RESET_ON_FORK);
    std::thread([] { EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER); }).join();
  });
}

TEST_F(ThreadPlace, WritesItsNumberIntoTheCgroup) {
  const MadeUpNode made;
  made.write("group/tasks", "");
  ::setenv(kVideoCgroupVariable, (made / "group").c_str(), 1);
  in_thread([&] {
    EXPECT_EQ(place_this_thread(ThreadClass::kVideo), "");
    std::ifstream in(made / "group/tasks");
    long id = 0;
    in >> id;
    EXPECT_EQ(id, ::syscall(SYS_gettid));
  });
}

}  // namespace
}  // namespace mso
