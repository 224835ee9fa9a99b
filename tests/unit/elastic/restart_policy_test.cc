#include "elastic/restart_policy.h"

#include <gtest/gtest.h>

namespace mso {
namespace {

AttemptOutcome failed(int code, bool progressed = false) {
  return {.exit_code = code, .started = true, .progressed = progressed, .stop_requested = false};
}

TEST(RestartPolicy, FinalCodesAreNeverRestarted) {
  for (int code : {0, 2, 3, 4, 75}) {
    RestartPolicy policy({});
    const RestartDecision decision = policy.decide(failed(code, true));
    EXPECT_FALSE(decision.restart) << code;
    EXPECT_EQ(decision.exit_code, code);
    EXPECT_TRUE(is_final_exit_code(code));
  }
}

TEST(RestartPolicy, EverythingElseIs) {
  for (int code : {1, 5, 127, 134, 137, 139, 143}) {
    RestartPolicy policy({});
    const RestartDecision decision = policy.decide(failed(code));
    EXPECT_TRUE(decision.restart) << code;
    EXPECT_EQ(decision.delay_s, 0);
    EXPECT_FALSE(is_final_exit_code(code));
  }
}

TEST(RestartPolicy, WithProgressForEverAndAtOnce) {
  RestartPolicy policy({.max_restarts = 2});
  for (int i = 0; i < 1000; ++i) {
    const RestartDecision decision = policy.decide(failed(137, true));
    ASSERT_TRUE(decision.restart);
    ASSERT_EQ(decision.delay_s, 0);
  }
}

TEST(RestartPolicy, WithoutProgressSlowerAndSlowerUpToTheLimit) {
  RestartPolicy policy({.max_restarts = 9, .first_delay_s = 1, .longest_delay_s = 30});
  std::vector<double> delays;
  for (;;) {
    const RestartDecision decision = policy.decide(failed(139));
    if (!decision.restart) {
      EXPECT_EQ(decision.exit_code, 139);
      EXPECT_NE(decision.reason.find("10 attempts in a row"), std::string::npos);
      break;
    }
    delays.push_back(decision.delay_s);
  }
  EXPECT_EQ(delays, (std::vector<double>{0, 0, 1, 2, 4, 8, 16, 30, 30}));
}

TEST(RestartPolicy, ProgressSetsTheCountBack) {
  RestartPolicy policy({.max_restarts = 3});
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(policy.decide(failed(1, i == 0)).restart);
  }
  EXPECT_FALSE(policy.decide(failed(1)).restart);
}

TEST(RestartPolicy, RestartsOff) {
  RestartPolicy policy({.max_restarts = 0});
  EXPECT_FALSE(policy.decide(failed(137, true)).restart);
}

TEST(RestartPolicy, StoppingIsNotAFailure) {
  RestartPolicy policy({});
  AttemptOutcome outcome = failed(137, true);
  outcome.stop_requested = true;
  EXPECT_FALSE(policy.decide(outcome).restart);
}

TEST(RestartPolicy, WhatNeverStartedIsNotTriedAgain) {
  RestartPolicy policy({});
  AttemptOutcome outcome = failed(1);
  outcome.started = false;
  const RestartDecision decision = policy.decide(outcome);
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.exit_code, 1);
}

TEST(RestartPolicy, CodesInWords) {
  EXPECT_EQ(describe_exit_code(3), "exit code 3");
  EXPECT_EQ(describe_exit_code(137), "killed by signal 9 (Killed)");
  EXPECT_EQ(describe_exit_code(255), "exit code 255");
}

}  // namespace
}  // namespace mso
