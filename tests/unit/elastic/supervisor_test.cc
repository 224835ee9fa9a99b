#include "elastic/supervisor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace mso {
namespace {

class Metrics : public testing::Test {
 protected:
  ~Metrics() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary | std::ios::trunc) << text; }
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / ("mso-metrics-" + std::to_string(getpid()) + ".jsonl");
};

TEST_F(Metrics, NoFileAndNoStep) {
  EXPECT_EQ(last_recorded_step(path_), -1);
  write("");
  EXPECT_EQ(last_recorded_step(path_), -1);
  write("{\"type\":\"start\",\"step\":5}\n");
  EXPECT_EQ(last_recorded_step(path_), -1);
}

TEST_F(Metrics, HighestStepCounts) {
  // After a resume, steps are repeated: the last line is not the highest.
  write(
      "{\"type\":\"step\",\"step\":17}\n{\"type\":\"resume\",\"step\":15}\n{\"type\":\"step\",\"step\":16}"
      "\n");
  EXPECT_EQ(last_recorded_step(path_), 17);
  EXPECT_EQ(last_recorded_step(path_, 30), 16);  // from the middle of a line
  EXPECT_EQ(last_recorded_step(path_, 100000), -1);
}

TEST_F(Metrics, TornAndStrangeLinesAreNotRead) {
  write(
      "garbage\n\n{\"type\":\"step\"}\n{\"type\":\"step\",\"step\":\"x\"}\n[1]\n{\"type\":7}\n"
      "{\"type\":\"step\",\"step\":3}\n{\"type\":\"step\",\"step\":44");
  EXPECT_EQ(last_recorded_step(path_), 3);
}

TEST_F(Metrics, OnlyTheEndOfALongFileIsRead) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "{\"type\":\"step\",\"step\":" + std::to_string(i) + "}\n";
  write(text);
  EXPECT_EQ(last_recorded_step(path_), 49999);
}

TEST(SupervisorReport, Table) {
  SupervisorReport report;
  report.attempts.push_back(
      {.ran_s = 12.3, .outcome = {.exit_code = 137}, .what = "rank 1 (pid 7): killed", .last_step = 17});
  report.attempts.push_back({.ran_s = 2,
                             .outcome = {},
                             .what = "all ranks: exit code 0",
                             .last_step = 30,
                             .restart_s = 0.0123,
                             .first_step_s = 3.5});
  report.reason = "finished";
  const std::string text = format_report(report);
  EXPECT_NE(text.find("rank 1 (pid 7): killed"), std::string::npos);
  EXPECT_NE(text.find("0.012 s"), std::string::npos);
  EXPECT_NE(text.find("1 restart; finished, exit code 0"), std::string::npos);
}

}  // namespace
}  // namespace mso
