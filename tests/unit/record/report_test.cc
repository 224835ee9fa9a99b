// What the report is made of: down-sampling, smoothing, the time axis with folded pauses, and the history of
// a run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "record/report_html.h"
#include "record/time_axis.h"

namespace mso {
namespace {

TEST(Decimator, FewPointsAreKeptAsTheyAre) {
  Decimator d(2000);
  for (int i = 0; i < 900; ++i) d.add({i * 1.0, std::sin(i), i, 0});
  auto points = d.points();
  ASSERT_EQ(points.size(), 900u);
  for (int i = 0; i < 900; ++i) EXPECT_EQ(points[i].y, std::sin(i));
}

TEST(Decimator, LongCurvesKeepTheirExtremesAndEnds) {
  for (size_t limit : {8u, 100u, 2000u})
    for (int n : {1, 2, 3, 999, 1000, 1999, 2000, 2001, 4097, 100000}) {
      Decimator d(limit);
      for (int i = 0; i < n; ++i) {
        double y = std::sin(i * 0.01);
        if (i == n / 3) y = 50;
        if (i == n / 2) y = -70;
        d.add({i * 1.0, y, i, 0});
      }
      auto points = d.points();
      ASSERT_LE(points.size(), limit) << n;
      EXPECT_EQ(points.front().step, 0);
      EXPECT_EQ(points.back().step, n - 1);
      bool high = false, low = false;
      for (size_t i = 0; i < points.size(); ++i) {
        high |= points[i].y == 50, low |= points[i].y == -70;
        ASSERT_TRUE(i == 0 || points[i - 1].x < points[i].x);
      }
      EXPECT_TRUE(low) << limit << " " << n;
      EXPECT_TRUE(high || n / 3 == n / 2) << limit << " " << n;
      EXPECT_LE(d.means().size(), limit / 2);
    }
}

TEST(Decimator, LeavesOutWhatIsNotFinite) {
  Decimator d(100);
  d.add({0, NAN, 0, 0});
  d.add({1, 5, 1, 0});
  d.add({2, INFINITY, 2, 0});
  ASSERT_EQ(d.points().size(), 1u);
  EXPECT_EQ(d.points()[0].y, 5);
  EXPECT_TRUE(Decimator(100).points().empty());
}

TEST(Smooth, KeepsLinesAndDoesNotCrossSegments) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 50; ++i) points.push_back({i * 1.0, 3.0 - 0.1 * i, i, 0});
  for (int i = 50; i < 100; ++i) points.push_back({i * 1.0, 100, i, 1});
  auto out = smooth(points, 4);
  for (int i = 0; i < 100; ++i) EXPECT_NEAR(out[i].y, points[i].y, 1e-9) << i;
  EXPECT_TRUE(smooth({}, 4).empty());
}

TEST(Quantile, Median) {
  std::vector<float> values = {5, 1, 3};
  EXPECT_EQ(quantile(values, 0.5), 3);
  values.clear();
  EXPECT_TRUE(std::isnan(quantile(values, 0.5)));
}

TEST(TimeAxis, ShortGapsAreTrueLongOnesFolded) {
  TimeAxis axis({{0, 100}, {101, 200}, {5000, 5100}}, 0, 1000);
  ASSERT_EQ(axis.breaks().size(), 1u);
  EXPECT_EQ(axis.breaks()[0].seconds, 4800);
  EXPECT_EQ(axis.x(-5), 0);
  EXPECT_EQ(axis.x(0), 0);
  EXPECT_NEAR(axis.x(5100), 1000, 1e-9);
  EXPECT_NEAR(axis.x(9999), 1000, 1e-9);
  EXPECT_NEAR(axis.breaks()[0].x1 - axis.breaks()[0].x0, 25, 1e-9);
  // To scale elsewhere: 300 s on 975.
  EXPECT_NEAR(axis.x(50), 50 * 3.25, 1e-9);
  EXPECT_NEAR(axis.x(5050) - axis.x(5000), 50 * 3.25, 1e-9);
  double before = -1;
  for (double t = 0; t < 5200; t += 7) {
    EXPECT_GE(axis.x(t), before);
    before = axis.x(t);
  }
  for (size_t i = 1; i < axis.ticks(80).size(); ++i)
    EXPECT_GE(axis.ticks(80)[i].x - axis.ticks(80)[i - 1].x, 70);
  EXPECT_EQ(axis.ticks(80)[0].label, "0");
}

TEST(TimeAxis, NothingRan) {
  TimeAxis none({}, 0, 100), moment({{5, 5}}, 0, 100), twice({{5, 5}, {9, 9}}, 0, 100);
  EXPECT_EQ(none.x(3), 100);
  EXPECT_EQ(moment.x(5), 0);
  EXPECT_TRUE(std::isfinite(twice.x(7)));
  EXPECT_FALSE(none.ticks(50).empty());
}

TEST(TimeAxis, RoundTicks) {
  EXPECT_EQ(round_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(1.9, 9.1, 4), (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(round_ticks(3, 3, 4), (std::vector<double>{3}));
}

class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/mso-history-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    file_.open(folder_ / "metrics.jsonl", std::ios::binary);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  template <typename T>
  void put(const T& record) {
    file_ << to_json(record) << '\n';
  }
  void step(double time, int64_t number, int attempt, double loss, double took = 1) {
    StepRecord r;
    r.time = time, r.step = number, r.attempt = attempt, r.loss = loss, r.grad_norm = 1, r.lr = 1;
    r.tokens = 100, r.samples = 4, r.sample_digest = std::to_string(number), r.step_s = took,
    r.data_wait_s = took / 10;
    put(r);
  }
  RunHistory read() {
    file_.flush();
    return read_run(folder_);
  }
  std::filesystem::path folder_;
  std::ofstream file_;
};

// Steps 1 to 5, killed at 105; back at 112 from the state after step 3; step 4 begins at 113; step 6 done at
// 116.
TEST_F(HistoryTest, OneKillInNumbers) {
  put(StartRecord{100, 1, 2, 0, 8, "id", 1000});
  for (int s = 1; s <= 5; ++s) step(100 + s, s, 1, 10.0 - s);
  put(StartRecord{112, 2, 2, 3, 8, "id", 1000});
  put(ResumeRecord{113, 2, 0, 3, "partner", 0.5, 2});
  for (int s = 4; s <= 8; ++s) step(110 + s, s, 2, 10.0 - s);
  put(EndRecord{119, 2, 8, 0, ""});
  RunHistory h = read();
  EXPECT_EQ(h.state(1e9), RunHistory::State::kFinished);
  EXPECT_EQ(h.steps_finished, 8);
  EXPECT_EQ(h.steps_planned, 8);
  EXPECT_EQ(h.recoveries(), 1);
  EXPECT_EQ(h.repeated_steps, 2);
  EXPECT_EQ(h.repeated_differ, 0);
  ASSERT_EQ(h.attempts.size(), 2u);
  EXPECT_EQ(h.attempts[1].repeated, 2);
  EXPECT_EQ(h.attempts[1].caught_up, 116);
  EXPECT_EQ(h.lost_seconds(1), 11);
  EXPECT_EQ(h.down_seconds, 8);  // 105 to 113
  EXPECT_EQ(h.step_seconds, 8);
  EXPECT_EQ(h.repeated_seconds, 2);
  EXPECT_NEAR(h.wait_seconds, 0.8, 1e-9);
  EXPECT_EQ(h.tokens, 800);
  EXPECT_EQ(h.median_tokens_per_s, 100);
  EXPECT_EQ(h.first_loss, 9);
  EXPECT_EQ(h.final_loss, 2);
  EXPECT_EQ(h.loss.added(), 8u);
  EXPECT_EQ(h.repeated_loss.added(), 2u);
  EXPECT_EQ(report_sentence(h, 1e9),
            "finished: 8 of 8 steps in 19 s, loss 9.000 to 2.000 (−78 %), 1 recovery");
}

TEST_F(HistoryTest, ARepeatedStepMustBeTheSameToTheLastBit) {
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  step(101, 1, 1, 2.0);
  step(102, 2, 1, 1.0);
  put(StartRecord{103, 2, 1, 0, 8, "", 0});
  step(104, 1, 2, std::nextafter(2.0, 3.0));
  step(105, 2, 2, 1.0);
  RunHistory h = read();
  EXPECT_EQ(h.repeated_steps, 2);
  EXPECT_EQ(h.repeated_differ, 1);
  EXPECT_EQ(h.first_difference, "Step 1 in attempt 2: loss 2.0000000000000004, was 2.0");
}

TEST_F(HistoryTest, SamplesOfARepeatedStepAreComparedAndNanEqualsNan) {
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  step(101, 1, 1, NAN);
  step(102, 2, 1, 1.0);
  put(StartRecord{103, 2, 1, 0, 8, "", 0});
  step(104, 1, 2, NAN);
  StepRecord other;
  other.time = 105, other.step = 2, other.attempt = 2, other.loss = 1, other.grad_norm = 1;
  other.sample_digest = "other";
  put(other);
  RunHistory h = read();
  EXPECT_EQ(h.not_finite_count, 2);
  EXPECT_EQ(h.repeated_differ, 1);
  EXPECT_EQ(h.first_difference, "Step 2 in attempt 2: trained on other samples");
}

TEST_F(HistoryTest, StatesOfARun) {
  EXPECT_EQ(read().state(0), RunHistory::State::kEmpty);
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  EXPECT_EQ(read().state(110), RunHistory::State::kRunning);
  EXPECT_EQ(read().state(161), RunHistory::State::kInterrupted);
  step(400, 1, 1, 1, 300);  // slow steps: silence is judged by them
  EXPECT_EQ(read().state(3300), RunHistory::State::kRunning);
  EXPECT_EQ(read().state(3500), RunHistory::State::kInterrupted);
  put(EndRecord{401, 1, 1, 75, "stopped by SIGTERM"});
  EXPECT_EQ(read().state(402), RunHistory::State::kStopped);
  put(StartRecord{500, 2, 1, 1, 8, "", 0});
  put(EndRecord{501, 2, 1, 5, "rank 3 did not answer"});
  EXPECT_EQ(read().state(9999), RunHistory::State::kFailed);
}

TEST_F(HistoryTest, KilledBeforeTheFirstStepAndNeverBackWhereItWas) {
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  for (int s = 1; s <= 5; ++s) step(100 + s, s, 1, 1);
  put(StartRecord{110, 2, 1, 2, 8, "", 0});
  put(StartRecord{120, 3, 1, 2, 8, "", 0});
  step(122, 3, 3, 1);
  RunHistory h = read();
  ASSERT_EQ(h.attempts.size(), 3u);
  EXPECT_EQ(h.attempts[2].caught_up, 0);
  EXPECT_EQ(h.lost_seconds(1), 5);
  EXPECT_EQ(h.lost_seconds(2), 12);
  EXPECT_EQ(h.steps_finished, 5);
  EXPECT_NE(report_html(h, 200).find("not reached"), std::string::npos);
}

TEST_F(HistoryTest, AClockSetBackDoesNotTurnTheCurves) {
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  step(110, 1, 1, 1);
  step(50, 2, 1, 1);
  step(0, 3, 1, 1);
  step(111, 4, 1, 1);
  RunHistory h = read();
  double before = 0;
  for (const auto& p : h.speed.points()) {
    EXPECT_GE(p.x, before);
    before = p.x;
  }
  EXPECT_EQ(h.last_time, 111);
}

TEST_F(HistoryTest, AttemptNumbersMissingOrRepeated) {
  step(101, 1, 0, 1);
  step(102, 2, 0, 1);
  put(StartRecord{103, 1, 1, 0, 0, "", 0});  // the same number: a new start all the same
  step(104, 1, 1, 1);
  step(105, 2, 4, 1);  // a start that was lost
  RunHistory h = read();
  ASSERT_EQ(h.attempts.size(), 3u);
  EXPECT_EQ(h.attempts[2].number, 4);
  EXPECT_EQ(h.repeated_steps, 2);
}

TEST_F(HistoryTest, SnapshotsIncidentsLedgerAndConfiguration) {
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  for (int i = 0; i < 30; ++i)
    put(SnapshotRecord{101.0 + i, 1, 1, i, 0.5, 10, i % 3 != 0, i % 3 == 1, i % 3 ? "" : "full <disk>"});
  for (int i = 0; i < 3000; ++i) put(IncidentRecord{131, 1, "bad_sample", "x"});
  std::ofstream(folder_ / "ledger.jsonl")
      << "{\"reason\":\"too_long\",\"key\":\"a\",\"shard\":\"s.tar\",\"detail\":\"d\"}\nbroken\n"
         "{\"reason\":\"too_long\"}\n{\"reason\":7}\n";
  std::ofstream(folder_ / "config.yaml") << "train:\n  steps: 8\n  groups: [{match: \"a*\"}]\nempty:\n";
  RunHistory h = read();
  EXPECT_EQ(h.levels[1].failed, 10);
  EXPECT_EQ(h.levels[1].degraded, 10);
  EXPECT_EQ(h.levels[1].good, 10);
  EXPECT_EQ(h.levels[1].errors["full <disk>"], 10);
  EXPECT_EQ(h.incident_count, 3000);
  EXPECT_EQ(h.incidents.size(), RunHistory::kIncidentsKept);
  EXPECT_EQ(h.bad_samples["too_long"].count, 2);
  EXPECT_EQ(h.bad_samples["too_long"].examples, std::vector<std::string>{"a in s.tar: d"});
  EXPECT_EQ(h.bad_sample_count, 3);
  ASSERT_EQ(h.config.size(), 3u);
  EXPECT_EQ(h.config[0], (std::pair<std::string, std::string>("train.steps", "8")));
  EXPECT_EQ(h.config[1].first, "train.groups");
  std::string page = report_html(h, 200);
  EXPECT_NE(page.find("full &lt;disk&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<disk>"), std::string::npos);
}

TEST_F(HistoryTest, NoFileAndAFileInsteadOfAFolder) {
  EXPECT_THROW(read_run(folder_ / "none"), Error);
  put(StartRecord{100, 1, 1, 0, 8, "", 0});
  file_.flush();
  EXPECT_EQ(read_run(folder_ / "metrics.jsonl").folder, folder_);
}

}  // namespace
}  // namespace mso
