// Other programs: codes, what they say, and deadlines that hold whatever they do.
#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/joined.h"

namespace mso {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
// Far above every deadline below, far below for ever.
constexpr double kHang = 30;

TEST(Subprocess, OutputAndCodes) {
  Outcome outcome = run_program({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, kHang, 100);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.output, "out\n");
  EXPECT_EQ(outcome.errors, "err\n");
  EXPECT_FALSE(outcome.timed_out);
  outcome = run_program({"/bin/sh", "-c", "head -c 100000 /dev/zero; kill -9 $$"}, kHang, 1000);
  EXPECT_EQ(outcome.output.size(), 1000u);
  EXPECT_EQ(outcome.exit_code, 137);
  const std::vector<std::string> environment = {"ONLY=this"};
  EXPECT_EQ(run_program({"/usr/bin/env"}, kHang, 100, &environment).output, "ONLY=this\n");
}

TEST(Subprocess, NamesAreLookedForInPathAndPathsAreNot) {
  EXPECT_EQ(run_program({"sh", "-c", "exit 4"}, kHang, 0).exit_code, 4);
  EXPECT_EQ(run_program({"no-such-program-of-ours"}, kHang, 0).not_started, ENOENT);
  EXPECT_EQ(run_program({"/nonexistent/sh"}, kHang, 0).not_started, ENOENT);
  EXPECT_EQ(run_program({"/nonexistent/sh"}, kHang, 0).exit_code, -1);
}

TEST(Subprocess, TheDeadlineHoldsWhateverTheProgramDoes) {
  for (const char* script : {
           "sleep 60",                                  // says nothing
           "exec >&- 2>&-; sleep 60",                   // closes its output
           "while :; do echo y; done",                  // never stops
           "while :; do echo y; echo n >&2; done",      // on both
           "trap '' TERM INT HUP; sleep 60 & sleep 60",  // ignores what can be ignored
           "sleep 60 &",                                // ends, but what it started holds the pipes
       }) {
    Outcome outcome;
    EXPECT_LT(seconds_of([&] { outcome = run_program({"/bin/sh", "-c", script}, 0.3, 1000); }), kHang) << script;
    EXPECT_TRUE(outcome.timed_out) << script;
    EXPECT_LE(outcome.output.size(), 1000u);
  }
}

TEST(Subprocess, WhatItStartedIsKilledWithIt) {
  const std::string file = testing::TempDir() + "/mso-subprocess-" + std::to_string(::getpid());
  std::filesystem::remove(file);
  run_program({"/bin/sh", "-c", "sleep 60 & echo $! >" + file + "; wait"}, 1, 0);
  std::ifstream in(file);
  pid_t pid = 0;
  in >> pid;
  ASSERT_GT(pid, 1);
  // Gone, or waiting to be reaped by whoever adopted it.
  for (int i = 0; i < 500; ++i) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(status, text) || text.find(") Z ") != std::string::npos) break;
    ::usleep(10000);
    ASSERT_LT(i, 499) << text;
  }
  std::filesystem::remove(file);
}

TEST(Subprocess, ADaemonThatReapsItsChildrenDoesNotConfuseIt) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const Outcome outcome = run_program({"/bin/sh", "-c", "echo x; exit 3"}, kHang, 100);
  ::signal(SIGCHLD, before);
  EXPECT_EQ(outcome.output, "x\n");
  EXPECT_EQ(outcome.exit_code, -1);
  EXPECT_FALSE(outcome.timed_out);
}

TEST(Subprocess, SeveralAtTheSameTimeShareOneDeadline) {
  std::vector<Outcome> outcomes;
  // Each waits for the next one: one after the other would not do.
  const std::string folder = testing::TempDir() + "/mso-together-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const auto meets = [&](const std::string& mine, const std::string& other) {
    return std::vector<std::string>{"/bin/sh", "-c",
                                    "cd " + folder + "; : >" + mine + "; until [ -e " + other +
                                        " ]; do sleep 0.01; done; echo " + mine};
  };
  outcomes = run_programs({meets("a", "b"), {"/nonexistent"}, meets("b", "a"), {"/bin/false"}}, kHang, 100);
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_EQ(outcomes[0].output, "a\n");
  EXPECT_NE(outcomes[1].not_started, 0);
  EXPECT_EQ(outcomes[2].output, "b\n");
  EXPECT_EQ(outcomes[3].exit_code, 1);
  std::filesystem::remove_all(folder);

  EXPECT_LT(seconds_of([&] {
              outcomes = run_programs({{"sleep", "60"}, {"true"}, {"yes"}, {"sleep", "60"}}, 0.5, 10);
            }),
            kHang);
  EXPECT_TRUE(outcomes[0].timed_out && outcomes[2].timed_out && outcomes[3].timed_out);
  EXPECT_EQ(outcomes[0].exit_code, 137);
  EXPECT_TRUE(run_programs({}, 1, 0).empty());
}

TEST(Joined, PutsTheSeparatorBetween) {
  EXPECT_EQ(joined({}, ","), "");
  EXPECT_EQ(joined({"a"}, ","), "a");
  EXPECT_EQ(joined({"a", "", "b"}, ", "), "a, , b");
}

}  // namespace
}  // namespace mso
