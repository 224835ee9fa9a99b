// metrics.jsonl: exact numbers, torn and damaged lines, storage that fills up.
#include "record/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <clocale>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "record/run_history.h"

namespace mso {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/mso-metrics-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ / "metrics.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string text() { return read_file(path_); }
  std::vector<Record> all() {
    std::vector<Record> records;
    MetricsReader reader(path_);
    for (Record r; reader.next(r);) records.push_back(r);
    return records;
  }
  std::filesystem::path folder_, path_;
};

StepRecord step(int64_t number, double loss = 2.5) {
  StepRecord r;
  r.time = 1.7e9 + number, r.step = number, r.attempt = 1, r.loss = loss, r.grad_norm = 1.25, r.lr = 1e-4;
  r.tokens = 100, r.label_tokens = 60, r.samples = 4, r.sample_digest = "0123456789abcdef", r.step_s = 0.5;
  return r;
}

TEST_F(MetricsTest, DataAndStorageReadBackFieldByField) {
  // Every field has another value, so that none can stand in another's place.
  const DataRecord data{1.5e9, 7, 2, "image", 11, 12, 13, 14.5, 15, 16, 17, 18, 19, 20, 0.25, 21, 22, 23};
  const StorageRecord storage{1.5e9, 8, 3, "/data", "slow", 31, 32, 33, 34.5, 35.5, 36, 37, 38, 39, 40, 41};
  {
    MetricsWriter writer(path_);
    writer.write(data);
    writer.write(storage);
  }
  const auto records = all();
  ASSERT_EQ(records.size(), 2u);
  const auto& d = std::get<DataRecord>(records[0]);
  EXPECT_EQ(to_json(d), to_json(data));
  EXPECT_EQ(std::tie(d.step, d.attempt, d.modality, d.samples, d.deferred, d.waits, d.decode_s, d.depth, d.ready, d.memory_share, d.memory_used),
            std::make_tuple(7, 2, "image", 11, 12, 13, 14.5, 15, 16, 17, 18));
  EXPECT_EQ(std::tie(d.memory_borrowed, d.memory_peak, d.fragmentation, d.compactions, d.compacted_bytes, d.overflow_bytes),
            std::make_tuple(19, 20, 0.25, 21, 22, 23));
  const auto& s = std::get<StorageRecord>(records[1]);
  EXPECT_EQ(to_json(s), to_json(storage));
  EXPECT_EQ(std::tie(s.step, s.source, s.state, s.reads, s.bytes, s.errors, s.p50_ms, s.p99_ms, s.cached, s.missed, s.elsewhere, s.given_up,
                     s.cache_bytes, s.cache_fills),
            std::make_tuple(8, "/data", "slow", 31, 32, 33, 34.5, 35.5, 36, 37, 38, 39, 40, 41));
}

TEST_F(MetricsTest, CountersOfAttemptsAddUpInTheHistory) {
  auto line = [](int attempt, int64_t samples, int64_t peak) {
    DataRecord r;
    r.time = 1.5e9 + attempt, r.step = samples, r.attempt = attempt, r.modality = "audio";
    r.samples = samples, r.decode_s = 0.5, r.memory_peak = peak, r.depth = 8;
    return r;
  };
  {
    MetricsWriter writer(path_);
    for (const DataRecord& r : {line(1, 4, 100), line(1, 9, 300), line(2, 3, 50), line(2, 5, 60)}) writer.write(r);
  }
  const RunHistory history = read_run(folder_);
  const DataRecord& sum = history.data.at("audio");
  EXPECT_EQ(sum.samples, 14);
  EXPECT_EQ(sum.memory_peak, 300);
  EXPECT_EQ(sum.decode_s, 1);
  EXPECT_EQ(sum.depth, 8);
}

TEST_F(MetricsTest, EveryDoubleReadsBackBitForBit) {
  std::vector<double> values = {
      2.3140000000000001, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2, 0, 123456789.123456789};
  {
    MetricsWriter writer(path_);
    for (double v : values) {
      StepRecord r = step(1, v);
      r.grad_norm = -v;
      writer.write(r);
    }
  }
  auto records = all();
  ASSERT_EQ(records.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& r = std::get<StepRecord>(records[i]);
    EXPECT_EQ(std::memcmp(&r.loss, &values[i], 8), 0) << values[i];
    EXPECT_EQ(r.grad_norm, -values[i]);
    char expected[64];
    std::snprintf(expected, sizeof expected,
                  std::signbit(values[i]) ? "\"loss\":%.17g.0," : "\"loss\":%.17g,", values[i]);
    EXPECT_NE(to_json(step(1, values[i])).find(expected), std::string::npos) << to_json(step(1, values[i]));
  }
}

TEST_F(MetricsTest, NanAndInfinityAreStringsAndReadBack) {
  double inf = std::numeric_limits<double>::infinity();
  {
    MetricsWriter writer(path_);
    for (double v : {std::nan(""), inf, -inf}) writer.write(step(1, v));
  }
  auto json = nlohmann::json::parse(to_json(step(1, std::nan(""))));
  EXPECT_EQ(json["loss"], "nan");
  auto records = all();
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(records[0]).loss));
  EXPECT_EQ(std::get<StepRecord>(records[1]).loss, inf);
  EXPECT_EQ(std::get<StepRecord>(records[2]).loss, -inf);
}

TEST_F(MetricsTest, AllTypesRoundTrip) {
  {
    MetricsWriter writer(path_);
    writer.write(StartRecord{1.5e9, 2, 4, 17, 300, "run\"1\\", 14000000});
    writer.write(EvalRecord{1.5e9, 20, 2, 2.25, 999});
    writer.write(
        SnapshotRecord{1.5e9, 2, 1, 19, 0.25, int64_t{1} << 40, false, true, "No space left\non device"});
    writer.write(ResumeRecord{1.5e9, 2, 0, 17, "partner", 0.125, 2});
    writer.write(IncidentRecord{1.5e9, 2, "bad_sample", "\xff\xfe not UTF-8, <b>ü</b> \x01"});
    writer.write(EndRecord{1.5e9, 2, 300, 75, "stopped"});
  }
  auto r = all();
  ASSERT_EQ(r.size(), 6u);
  auto& start = std::get<StartRecord>(r[0]);
  EXPECT_EQ(start.run_id, "run\"1\\");
  EXPECT_EQ(start.step, 17);
  EXPECT_EQ(start.steps, 300);
  EXPECT_EQ(start.ranks, 4);
  EXPECT_EQ(start.parameters, 14000000);
  EXPECT_EQ(std::get<EvalRecord>(r[1]).loss, 2.25);
  auto& snapshot = std::get<SnapshotRecord>(r[2]);
  EXPECT_EQ(snapshot.bytes, int64_t{1} << 40);
  EXPECT_FALSE(snapshot.ok);
  EXPECT_TRUE(snapshot.degraded);
  EXPECT_EQ(snapshot.error, "No space left\non device");
  auto& resume = std::get<ResumeRecord>(r[3]);
  EXPECT_EQ(resume.source, "partner");
  EXPECT_EQ(resume.lost_steps, 2);
  EXPECT_EQ(resume.recovery_s, 0.125);
  EXPECT_EQ(std::get<IncidentRecord>(r[4]).message, "\xef\xbf\xbd\xef\xbf\xbd not UTF-8, <b>ü</b> \x01");
  EXPECT_EQ(std::get<EndRecord>(r[5]).exit_code, 75);
}

TEST_F(MetricsTest, TimeIsSetWhenLeftOut) {
  {
    MetricsWriter writer(path_);
    writer.write(IncidentRecord{0, 1, "signal", ""});
  }
  EXPECT_NEAR(std::get<IncidentRecord>(all()[0]).time, MetricsWriter::now(), 60);
}

TEST_F(MetricsTest, TornLastLineIsCutAndReported) {
  std::string whole = to_json(step(41)) + "\n" + to_json(step(42)) + "\n";
  std::string third = to_json(step(43));
  for (size_t keep = 1; keep < third.size(); ++keep) {
    put(whole + third.substr(0, keep));
    MetricsWriter writer(path_);
    ASSERT_EQ(writer.found().torn_bytes, static_cast<int64_t>(keep));
    ASSERT_EQ(writer.found().last_step, 42);
    ASSERT_EQ(writer.found().last_time, 1.7e9 + 42);
    writer.write(step(43));
    ASSERT_EQ(text(), whole + third + "\n");
  }
}

TEST_F(MetricsTest, WholeLastLineWithoutNewlineIsKept) {
  put(to_json(step(1)) + "\n" + to_json(step(2)));
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.found().torn_bytes, 0);
  EXPECT_EQ(writer.found().last_step, 2);
  writer.write(step(3));
  EXPECT_EQ(text(), to_json(step(1)) + "\n" + to_json(step(2)) + "\n" + to_json(step(3)) + "\n");
}

TEST_F(MetricsTest, ZerosAfterPowerLossAreCut) {
  std::string whole = to_json(step(1)) + "\n";
  put(whole + std::string(200000, '\0'));
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.found().torn_bytes, 200000);
  EXPECT_EQ(text(), whole);
}

TEST_F(MetricsTest, FileOfOneTornLine) {
  put("{\"type\":\"st");
  MetricsWriter writer(path_);
  EXPECT_TRUE(writer.found().existed);
  EXPECT_EQ(writer.found().last_step, 0);
  EXPECT_EQ(text(), "");
}

TEST_F(MetricsTest, NewFileFindsNothing) {
  MetricsWriter writer(path_);
  EXPECT_FALSE(writer.found().existed);
  EXPECT_EQ(writer.found().torn_bytes, 0);
}

TEST_F(MetricsTest, LastStepIsFoundBehindOtherLines) {
  std::string lines = to_json(step(7)) + "\n";
  for (int i = 0; i < 50; ++i) lines += to_json(IncidentRecord{2e9, 1, "bad_sample", "x"}) + "\n";
  put(lines);
  MetricsWriter writer(path_);
  EXPECT_EQ(writer.found().last_step, 7);
  EXPECT_EQ(writer.found().last_time, 2e9);
}

TEST_F(MetricsTest, ReaderSkipsDamageAndKeepsUnknownTypes) {
  put(to_json(step(1)) + "\n" + "not json\n" + "[1,2]\n\n" + "{\"type\":\"migration\",\"to\":3}\r\n" +
      "{\"type\":\"step\",\"loss\":1}\n" +
      "{\"type\":\"step\",\"step\":5,\"loss\":null,\"tokens\":\"many\"}\n" + std::string(10, '\0') +
      "\n{\"no\":\"type\"}\n" + to_json(step(2)).substr(0, 30));
  MetricsReader reader(path_);
  std::vector<Record> r;
  for (Record one; reader.next(one);) r.push_back(one);
  ASSERT_EQ(r.size(), 5u);
  EXPECT_EQ(std::get<UnknownRecord>(r[1]).type, "migration");
  EXPECT_EQ(std::get<UnknownRecord>(r[1]).text, "{\"type\":\"migration\",\"to\":3}\r");
  EXPECT_EQ(std::get<UnknownRecord>(r[2]).type, "step");
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(r[3]).loss));
  EXPECT_EQ(std::get<StepRecord>(r[3]).tokens, 0);
  EXPECT_EQ(reader.damaged().count, 3);
  EXPECT_TRUE(reader.torn());
  EXPECT_EQ(find_damaged_lines(path_).first, reader.damaged().first);
}

TEST_F(MetricsTest, DamagedLinesAreNamedByNumber) {
  EXPECT_EQ((DamagedLines{1, {17}}.text()), "line 17");
  EXPECT_EQ((DamagedLines{2, {3, 9}}.text()), "lines 3 and 9");
  EXPECT_EQ((DamagedLines{17, {1, 2, 3, 4, 5}}.text()), "lines 1, 2, 3, 4, 5 and 12 more");
  const std::string good = to_json(step(1)) + "\n";
  // Blank lines are no damage; two lines that ran into each other, a number, an array and zeros are.
  put(good + "\n" + good + good.substr(0, 40) + good + "17\n" + good + "[]\n" + std::string(8, '\0') + "\n" + good +
      good.substr(0, 20));
  const DamagedLines damaged = find_damaged_lines(path_);
  EXPECT_EQ(damaged.first, (std::vector<int64_t>{4, 5, 7, 8}));
  EXPECT_EQ(damaged.count, 4);
  MetricsReader reader(path_);
  for (Record record; reader.next(record);) {
  }
  EXPECT_EQ(reader.damaged().first, damaged.first);
}

TEST_F(MetricsTest, AnEndAfterTheLastStepIsFound) {
  EndRecord end;
  end.step = 2;
  const std::string steps = to_json(step(1)) + "\n" + to_json(step(2)) + "\n", done = to_json(end) + "\n";
  end.exit_code = 75;
  const std::string stopped = to_json(end) + "\n";
  auto finished = [&](const std::string& text) {
    put(text);
    return MetricsWriter(path_).found().finished;
  };
  EXPECT_TRUE(finished(steps + done));
  EXPECT_TRUE(finished(steps + done + to_json(StartRecord()) + "\n"));
  EXPECT_FALSE(finished(steps));
  EXPECT_FALSE(finished(steps + stopped));
  EXPECT_FALSE(finished(done + steps));
}

TEST_F(MetricsTest, NumbersOutOfRangeAreMissing) {
  put("{\"type\":\"step\",\"step\":3,\"attempt\":99999999999,\"tokens\":1e300,\"samples\":"
      "18446744073709551615}\n");
  auto r = std::get<StepRecord>(all()[0]);
  EXPECT_EQ(r.attempt, 0);
  EXPECT_EQ(r.tokens, 0);
  EXPECT_EQ(r.samples, 0);
}

TEST_F(MetricsTest, ReaderOfLongLinesAcrossBlocks) {
  IncidentRecord big{1, 1, "x", std::string(700000, 'y')};
  put(to_json(big) + "\n" + to_json(step(1)) + "\n" + to_json(big) + "\n");
  auto r = all();
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(std::get<IncidentRecord>(r[2]).message, big.message);
}

TEST_F(MetricsTest, MissingFileIsAnErrorForTheReader) {
  EXPECT_THROW(MetricsReader{path_}, Error);
}

TEST_F(MetricsTest, MissingFolderDoesNotStopTraining) {
  MetricsWriter writer(folder_ / "gone" / "metrics.jsonl");
  writer.write(step(1));
  writer.write(step(2));
  EXPECT_EQ(writer.lost_lines(), 2);
}

TEST_F(MetricsTest, FullDeviceIsCountedNotThrown) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  MetricsWriter writer("/dev/full");
  for (int i = 0; i < 5; ++i) writer.write(step(i));
  EXPECT_EQ(writer.lost_lines(), 5);
}

// A size limit cuts writes in the middle of a line, as a full disk does; raised again, writing goes on.
TEST_F(MetricsTest, PartOfALineIsTakenBackAndLossIsNoted) {
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto old = ::signal(SIGXFSZ, SIG_IGN);
  {
    MetricsWriter writer(path_);
    writer.write(step(1));
    struct rlimit small = before;
    small.rlim_cur = text().size() + 20;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    writer.write(step(2));
    writer.write(step(3));
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(text(), to_json(step(1)) + "\n");
    writer.write(step(4));
    writer.write(step(5));
    EXPECT_EQ(writer.lost_lines(), 2);
  }
  ::signal(SIGXFSZ, old);
  auto r = all();
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(std::get<IncidentRecord>(r[1]).kind, "metrics_lost");
  EXPECT_EQ(std::get<StepRecord>(r[2]).step, 4);
  EXPECT_EQ(std::get<StepRecord>(r[3]).step, 5);
}

TEST_F(MetricsTest, ThreadsDoNotMixLines) {
  {
    MetricsWriter writer(path_);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 1; i <= 200; ++i) writer.write(step(i));
      });
    for (auto& t : threads) t.join();
  }
  MetricsReader reader(path_);
  int n = 0;
  for (Record r; reader.next(r);) ++n;
  EXPECT_EQ(n, 800);
  EXPECT_EQ(reader.damaged().count, 0);
}

TEST_F(MetricsTest, KilledWriterLeavesAReadableFile) {
  for (int round = 0; round < 5; ++round) {
    pid_t child = ::fork();
    if (child == 0) {
      MetricsWriter writer(path_);
      for (int64_t i = writer.found().last_step + 1;; ++i) writer.write(step(i));
    }
    ::usleep(20000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    MetricsReader reader(path_);
    int64_t expected = 1;
    for (Record r; reader.next(r);) ASSERT_EQ(std::get<StepRecord>(r).step, expected++);
    EXPECT_EQ(reader.damaged().count, 0);
  }
}

}  // namespace
}  // namespace mso
