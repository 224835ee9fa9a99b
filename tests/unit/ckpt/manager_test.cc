// The manager and recovery together: snapshots at all levels, resuming from each, with the same and other
// numbers of ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "tiny_run.h"

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

// Levels by name: "0", "01", "2"…, each due at every step.
std::function<void(CheckpointSettings&, int)> only(std::string levels, bool nodes_differ = false) {
  return [=](CheckpointSettings& s, int rank) {
    s.level0_interval_s = levels.find('0') != std::string::npos ? 0 : -1;
    s.level1_interval_s = levels.find('1') != std::string::npos ? 0 : -1;
    s.level2_interval_s = levels.find('2') != std::string::npos ? 0 : -1;
    if (nodes_differ) s.node = "node" + std::to_string(rank);
  };
}

size_t count(const TinyResult& result, SnapshotLevel level, bool ok) {
  size_t n = 0;
  for (const SnapshotEvent& e : result.events[0])
    n += e.kind == SnapshotEvent::Kind::kSnapshot && e.level == level && e.ok == ok;
  return n;
}

void expect_good(const TinyResult& result) {
  for (const std::string& error : result.errors) EXPECT_EQ(error, "");
  EXPECT_EQ(result.difference, "");
  EXPECT_TRUE(result.finished);
}

TEST(Manager, FreshRunHasNothingToResumeFrom) {
  TemporaryFolder folder;
  TinyResult result = run_tiny({.folder = folder.path(), .ranks = 2, .until = 0});
  expect_good(result);
  EXPECT_FALSE(result.resumed);
}

TEST(Manager, ResumesFromEachLevelAlone) {
  for (std::string level : {"0", "1", "2"}) {
    TemporaryFolder folder;
    TinyResult first = run_tiny({.folder = folder.path(), .ranks = 2, .until = 60, .adjust = only(level)});
    expect_good(first);
    EXPECT_GT(count(first, static_cast<SnapshotLevel>(level[0] - '0'), true), 1u) << level;
    TinyResult second = run_tiny({.folder = folder.path(), .ranks = 2, .until = 0, .adjust = only(level)});
    expect_good(second);
    ASSERT_TRUE(second.resumed) << level;
    EXPECT_EQ(static_cast<int>(second.resumed->level), level[0] - '0');
    EXPECT_GT(second.resumed->step, 0u);
    EXPECT_EQ(second.cursor, "{\"position\": " + std::to_string(second.resumed->step * 100) + "}");
    EXPECT_EQ(second.source, level == "0" ? ShardSource::kOwn : ShardSource::kShared);
  }
}

TEST(Manager, FinalSnapshotIsOfTheLastStep) {
  TemporaryFolder folder;
  expect_good(run_tiny(
      {.folder = folder.path(), .ranks = 3, .until = 7, .adjust = only("01"), .final_snapshot = true}));
  fs::remove_all(folder.path() / "ram");
  fs::remove_all(folder.path() / "run/checkpoints/L1");  // may hold step 7 too
  TinyResult second = run_tiny({.folder = folder.path(), .ranks = 3, .until = 0});
  expect_good(second);
  ASSERT_TRUE(second.resumed);
  EXPECT_EQ(second.resumed->step, 7u);
  EXPECT_EQ(second.resumed->level, SnapshotLevel::kL2);
}

TEST(Manager, KeepsTwoOfEach) {
  TemporaryFolder folder;
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 40, .adjust = only("01", true)}));
  size_t states = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / "run/checkpoints/L1")) {
    ++states;
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
  }
  EXPECT_EQ(states, 2u);
  size_t generations = 0;
  std::map<fs::path, size_t> deltas;
  for (const fs::path& file : files_below(folder.path() / "ram"))
    if (file.filename().string().find("-delta-") != std::string::npos)
      ++deltas[file.parent_path()];
    else
      generations += file.extension() == ".h5";
  EXPECT_EQ(generations, 8u);  // two ranks, own and partner, two of each
  for (const auto& [path, n] : deltas) EXPECT_LE(n, 6u) << path;
}

TEST(Manager, AnyNumberOfRanksToAnyOther) {
  for (std::string level : {"0", "2"})
    for (int from : {1, 2, 3, 4})
      for (int to : {1, 2, 3, 4}) {
        TemporaryFolder folder;
        expect_good(run_tiny({.folder = folder.path(), .ranks = from, .until = 5, .adjust = only(level)}));
        TinyResult second =
            run_tiny({.folder = folder.path(), .ranks = to, .until = 9, .adjust = only(level)});
        expect_good(second);
        ASSERT_TRUE(second.resumed);
        EXPECT_EQ(second.resumed->shards.size(), static_cast<size_t>(from));
        // And on from there: the next start sees the new ranks' files.
        TinyResult third =
            run_tiny({.folder = folder.path(), .ranks = from, .until = 0, .adjust = only(level)});
        expect_good(third);
        ASSERT_TRUE(third.resumed);
        EXPECT_EQ(third.resumed->shards.size(), static_cast<size_t>(to));
        EXPECT_GT(third.resumed->step, second.resumed->step);
      }
}

TEST(Manager, PartnerCopyReplacesALostRank) {
  for (int lost : {0, 1, 2}) {
    TemporaryFolder folder;
    expect_good(run_tiny({.folder = folder.path(), .ranks = 3, .until = 6, .adjust = only("0", true)}));
    for (const auto& run : fs::directory_iterator(*fs::directory_iterator(folder.path() / "ram")))
      fs::remove_all(run.path() / ("rank-000" + std::to_string(lost)));
    TinyResult second =
        run_tiny({.folder = folder.path(), .ranks = 3, .until = 0, .adjust = only("0", true)});
    expect_good(second);
    ASSERT_TRUE(second.resumed) << lost;
    EXPECT_EQ(second.source, ShardSource::kPartner);
    EXPECT_EQ(second.resumed->shards[lost].source, ShardSource::kPartner);
  }
}

TEST(Manager, EveryStepMeansEveryStep) {
  TemporaryFolder folder;
  // What has been written by the next step does not hold up the next snapshot.
  TinyResult result = run_tiny(
      {.folder = folder.path(), .ranks = 1, .until = 12, .adjust = only("0"), .each_step = wait_for_level0});
  expect_good(result);
  EXPECT_EQ(count(result, SnapshotLevel::kL0, true), 12u);
}

TEST(Manager, LosingEverythingIsAnErrorNotARestartFromZero) {
  TemporaryFolder folder;
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 6, .adjust = only("0")}));
  fs::remove_all(folder.path() / "ram");
  TinyResult second = run_tiny({.folder = folder.path(), .ranks = 2, .until = 9});
  EXPECT_EQ(second.exit_code, ExitCode::kNoValidState);
  EXPECT_NE(second.errors[1], "");
}

TEST(Manager, UnfinishedFirstSnapshotStartsCleanly) {
  TemporaryFolder folder;
  // Rank 1 never wrote: what a kill between the two ranks' first files leaves.
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 3, .adjust = only("0")}));
  for (const fs::path& file : files_below(folder.path() / "ram"))
    if (file.string().find("rank-0001") != std::string::npos) fs::remove(file);
  fs::remove(folder.path() / "run/checkpoints/first-whole-step");
  TinyResult second = run_tiny({.folder = folder.path(), .ranks = 2, .until = 5, .adjust = only("0")});
  expect_good(second);
  EXPECT_FALSE(second.resumed);
}

TEST(Manager, UnknownFoldersAreLeftAlone) {
  TemporaryFolder folder;
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 10, .adjust = only("1")}));
  const fs::path level = folder.path() / "run/checkpoints/L1";
  fs::path any = fs::directory_iterator(level)->path();
  for (std::string name : {"step-100.backup", "step-100", "step-999999999x", "notes"})
    fs::copy(any, level / name, fs::copy_options::recursive);
  fs::copy(any, level / "step-000999999",
           fs::copy_options::recursive);  // our kind of name, another state's content
  TinyResult second = run_tiny({.folder = folder.path(), .ranks = 2, .until = 60, .adjust = only("1")});
  expect_good(second);
  ASSERT_TRUE(second.resumed);
  EXPECT_LE(second.resumed->step, 10u);
  for (std::string name : {"step-100.backup", "step-100", "step-999999999x", "notes"}) {
    EXPECT_TRUE(fs::exists(level / name / "manifest.json")) << name;
    EXPECT_TRUE(fs::exists(level / name / "rank-0001-of-0002.h5")) << name;
  }
}

TEST(Manager, WeightsAloneRankBehindExactStates) {
  TemporaryFolder folder;
  auto weights_only = [](CheckpointSettings& s, int rank) {
    only("1")(s, rank);
    s.level1_optimizer = false;
  };
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 4, .adjust = only("2")}));
  expect_good(run_tiny({.folder = folder.path(), .ranks = 2, .until = 20, .adjust = weights_only}));
  TinyResult second = run_tiny({.folder = folder.path(), .ranks = 2, .until = 0});
  expect_good(second);
  ASSERT_TRUE(second.resumed);
  EXPECT_TRUE(second.resumed->exact);
  EXPECT_LE(second.resumed->step, 4u);
  // Weights are all that is left: refused while the moments are required.
  fs::remove_all(folder.path() / "run/checkpoints/L2");
  TinyResult third = run_tiny({.folder = folder.path(), .ranks = 2, .until = 0});
  EXPECT_NE(third.errors[0].find("exp_avg"), std::string::npos) << third.errors[0];
}

TEST(Manager, ANewerStartFencesThisOne) {
  TemporaryFolder folder;
  auto raise = [&](int rank, uint64_t step, CheckpointManager&) {
    if (rank == 0 && step == 5) write_file_durably(folder.path() / "run/attempt", "9\n");
  };
  TinyResult result =
      run_tiny({.folder = folder.path(), .ranks = 2, .until = 500, .adjust = only("1"), .each_step = raise});
  EXPECT_TRUE(result.attempt_lost);
  uint64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(folder.path() / "run/checkpoints/L1"))
    if (entry.path().filename().string().size() == 14)
      newest = std::max<uint64_t>(newest, std::stoull(entry.path().filename().string().substr(5)));
  EXPECT_LE(newest, 5u);
  // The same on the RAM disk.
  TemporaryFolder other;
  auto raise_level0 = [&](int rank, uint64_t step, CheckpointManager&) {
    if (rank == 1 && step == 5)
      for (const auto& run : fs::directory_iterator(*fs::directory_iterator(other.path() / "ram")))
        write_file_durably(run.path() / "attempt", "9 " + hex64(hash64("9")) + "\n");
  };
  EXPECT_TRUE(
      run_tiny(
          {.folder = other.path(), .ranks = 2, .until = 500, .adjust = only("0"), .each_step = raise_level0})
          .attempt_lost);
}

TEST(Manager, SecondLiveRunInAFolderIsRefused) {
  TemporaryFolder folder;
  auto single = make_single_communicator("one");
  RunAttempt first = RunAttempt::begin(folder.path(), *single, 5);
  EXPECT_EQ(first.number(), 1);
  try {
    RunAttempt::begin(folder.path(), *single, 5);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
  }
  const std::string id = first.run_id();
  first = RunAttempt();
  RunAttempt second = RunAttempt::begin(folder.path(), *single, 5);
  EXPECT_EQ(second.number(), 2);
  EXPECT_EQ(second.run_id(), id);
}

}  // namespace
}  // namespace mso::testing
