// Copied, moved and robbed run folders: two runs never share a RAM disk folder, and none ends for a file that can be
// made again.
#include "ckpt/run_identity.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/level0_store.h"
#include "tiny_run.h"

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

TEST(JudgePlace, InodeAndPath) {
  const RunPlace here{"/runs/a", 7};
  EXPECT_EQ(judge_place(here, {"/runs/a", 7}, false), PlaceVerdict::kSame);
  EXPECT_EQ(judge_place(here, {"/runs/b", 7}, false), PlaceVerdict::kMoved);
  EXPECT_EQ(judge_place(here, {"/mnt/runs/b", 7}, true), PlaceVerdict::kCopy);  // two file systems, one number
  EXPECT_EQ(judge_place(here, {"/runs/b", 8}, true), PlaceVerdict::kCopy);
  EXPECT_EQ(judge_place(here, {"/runs/b", 8}, false), PlaceVerdict::kCopy);  // the original may have been renamed
  EXPECT_EQ(judge_place(here, {"/runs/a", 8}, false), PlaceVerdict::kCopy);  // restored from a backup
}

struct Folders {
  TemporaryFolder folder;
  // Trains the run in `name` with the common RAM disk.
  TinyResult train(const std::string& name, uint64_t until) {
    return run_tiny({.folder = folder.path(), .ranks = 2, .until = until, .adjust = [&, name](CheckpointSettings& s, int) {
                       s.run_dir = folder.path() / name;
                       s.level1_interval_s = 0;
                     }, .each_step = wait_for_level0});
  }
  fs::path at(const std::string& name) const { return folder.path() / name; }
  std::string id(const std::string& name) const { return read_run_id(at(name)); }
};

TEST(RunIdentity, ACopyGoesOnBesideItsOriginal) {
  Folders f;
  f.train("run", 8);
  fs::copy(f.at("run"), f.at("copy"), fs::copy_options::recursive);
  EXPECT_EQ(f.id("run"), f.id("copy"));
  EXPECT_TRUE(read_identity(f.at("copy")).changed);
  EXPECT_FALSE(read_identity(f.at("run")).changed);
  const TinyResult copy = f.train("copy", 16);
  ASSERT_TRUE(copy.resumed);
  EXPECT_EQ(copy.resumed->level, SnapshotLevel::kL1);  // Level 0 is the original's
  EXPECT_EQ(copy.difference, "");
  EXPECT_NE(f.id("run"), f.id("copy"));
  EXPECT_EQ(read_identity(f.at("copy")).earlier, std::vector<std::string>{f.id("run")});
  // The original resumes from its own Level 0, which nobody touched, and the copy from its own from now on.
  const TinyResult original = f.train("run", 12);
  ASSERT_TRUE(original.resumed);
  EXPECT_EQ(original.resumed->level, SnapshotLevel::kL0);
  EXPECT_EQ(original.resumed->step, 8u);
  EXPECT_EQ(original.difference, "");
  const std::string id = f.id("copy");
  const TinyResult again = f.train("copy", 20);
  ASSERT_TRUE(again.resumed);
  EXPECT_EQ(again.resumed->step, 16u);
  EXPECT_EQ(again.resumed->level, SnapshotLevel::kL0);
  EXPECT_EQ(f.id("copy"), id);
  for (const TinyResult* result : {&copy, &original, &again}) {
    EXPECT_FALSE(result->attempt_lost);
    for (const std::string& error : result->errors) EXPECT_EQ(error, "");
  }
}

TEST(RunIdentity, ACopyOfACopyOwnsTheStatesOfBoth) {
  Folders f;
  f.train("run", 6);
  fs::copy(f.at("run"), f.at("a"), fs::copy_options::recursive);
  settle_identity(f.at("a"));  // started and ended before it had written anything
  fs::copy(f.at("a"), f.at("b"), fs::copy_options::recursive);
  const TinyResult b = f.train("b", 9);
  ASSERT_TRUE(b.resumed);
  EXPECT_EQ(b.difference, "");
  EXPECT_EQ(read_identity(f.at("b")).earlier, (std::vector<std::string>{f.id("run"), f.id("a")}));
}

TEST(RunIdentity, AMovedRunStaysItself) {
  Folders f;
  f.train("run", 8);
  const std::string id = f.id("run");
  fs::rename(f.at("run"), f.at("moved"));
  const TinyResult moved = f.train("moved", 12);
  EXPECT_EQ(f.id("moved"), id);
  ASSERT_TRUE(moved.resumed);
  EXPECT_EQ(moved.resumed->level, SnapshotLevel::kL0);
  // Another run takes its old place: no reason to doubt the moved one.
  f.train("run", 2);
  fs::rename(f.at("moved"), f.at("moved2"));
  EXPECT_FALSE(settle_identity(f.at("moved2")).changed);
}

TEST(RunIdentity, KilledBetweenItsTwoFilesTheNewIdCounts) {
  Folders f;
  f.train("run", 4);
  fs::copy(f.at("run"), f.at("copy"), fs::copy_options::recursive);
  const std::string old = f.id("copy"), made = settle_identity(f.at("copy")).run_id;
  write_file_durably(f.at("copy") / "run_id", old + "\n");  // as if it had not come so far
  EXPECT_EQ(settle_identity(f.at("copy")).run_id, made);
  EXPECT_EQ(f.id("copy"), made);
}

TEST(RunIdentity, ARunOfAnEarlierVersionAndADamagedRecord) {
  Folders f;
  f.train("run", 4);
  const std::string id = f.id("run");
  for (const char* text : {"", "{", "[]", "{\"path\": 3}"}) {
    write_file_durably(f.at("run") / "place.json", text);
    EXPECT_EQ(settle_identity(f.at("run")).run_id, id) << text;
  }
  fs::remove(f.at("run") / "place.json");
  EXPECT_EQ(settle_identity(f.at("run")).run_id, id);
  write_file_durably(f.at("run") / "run_id", "a b\n");
  try {
    settle_identity(f.at("run"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
    EXPECT_NE(e.hint().find("metrics.jsonl"), std::string::npos);
  }
}

void diary(const fs::path& run, const std::string& text) { std::ofstream(run / "metrics.jsonl", std::ios::app) << text; }

TEST(Counter, MissingDamagedOrSetBackGoesOnAboveTheDiary) {
  Folders f;
  for (int start = 1; start <= 3; ++start) f.train("run", 4 * start);
  diary(f.at("run"), "{\"type\":\"start\",\"attempt\":2}\n{\"type\":\"start\",\"attempt\":3}\nnoise \"attempt\":\n");
  uint64_t until = 16;
  for (const char* text : {"", "x", "1\n", "99999999999999999999"}) {
    if (*text == 0)
      fs::remove(f.at("run") / "attempt");
    else
      write_file_durably(f.at("run") / "attempt", text);
    const TinyResult result = f.train("run", until);
    EXPECT_FALSE(result.attempt_lost) << text;
    for (const std::string& error : result.errors) EXPECT_EQ(error, "") << text;
    ASSERT_TRUE(result.resumed) << text;
    EXPECT_EQ(result.resumed->step, until - 4);
    const int64_t number = read_attempt(f.at("run"));
    EXPECT_GT(number, 3) << text;
    diary(f.at("run"), "{\"type\":\"start\",\"attempt\":" + std::to_string(number) + "}\n");
    until += 4;
  }
}

TEST(Counter, MissingWithoutADiaryIsSaidPlainly) {
  Folders f;
  f.train("run", 4);
  fs::remove(f.at("run") / "attempt");
  const TinyResult result = f.train("run", 8);
  EXPECT_EQ(result.exit_code, ExitCode::kBadUsage);
  EXPECT_NE(result.errors[0].find((f.at("run") / "attempt").string()), std::string::npos) << result.errors[0];
}

TEST(Counter, ARefusedStartIsNotCounted) {
  TemporaryFolder folder;
  auto single = make_single_communicator("one");
  {
    RunAttempt first = RunAttempt::begin(folder.path(), *single, 5);
    EXPECT_THROW(RunAttempt::begin(folder.path(), *single, 5), Error);  // busy
    EXPECT_EQ(read_attempt(folder.path()), 1);
  }
  {
    RunAttempt second = RunAttempt::begin(folder.path(), *single, 5);
    EXPECT_EQ(second.number(), 2);
    second.withdraw();
  }
  EXPECT_EQ(RunAttempt::begin(folder.path(), *single, 5).number(), 2);
}

}  // namespace
}  // namespace mso::testing
