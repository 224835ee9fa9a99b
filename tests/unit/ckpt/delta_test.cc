// L0 deltas: when one is written, what recovery does with them, and with every one of them damaged or
// missing.
#include "ckpt/delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "ckpt/inspect.h"
#include "ckpt/level0_store.h"
#include "tiny_run.h"

namespace mso::testing {
namespace {

namespace fs = std::filesystem;

TEST(DeltaPolicy, Table) {
  struct Row {
    DeltaChain chain;
    uint64_t step;
    int expected;
    const char* why;
  };
  const Row table[] = {
      {{}, 1, 0, "nothing is whole"},
      {{std::nullopt, 6}, 7, 0, "no full state"},
      {{5, 5}, 6, 1, "right after a full state"},
      {{5, 6}, 7, 2, "second"},
      {{5, 7}, 8, 3, "third"},
      {{5, 8}, 9, 0, "four steps old"},
      {{5, 5}, 7, 0, "a step without L0"},
      {{5, 6}, 8, 0, "a step without L0 after a delta"},
      {{5, 5}, 5, 0, "the same step again"},
      {{5, 7}, 6, 0, "steps do not go back"},
      {{5, 4}, 5, 0, "a chain older than its full state"},
      {{0, 0}, 1, 1, "a full state before any step"},
      {{5, 5}, 1000000, 0, "long after"},
      {{std::numeric_limits<uint64_t>::max() - 1, std::numeric_limits<uint64_t>::max() - 1},
       std::numeric_limits<uint64_t>::max(),
       1,
       "no overflow"},
  };
  for (const Row& row : table) EXPECT_EQ(next_delta(row.chain, row.step), row.expected) << row.why;
}

TEST(DeltaPolicy, FailuresMakeDeltasRarer) {
  DeltaChain chain = extended({}, 1, 0);
  uint64_t step = 1, pause = 1;
  for (int failure = 1; failure <= 14; ++failure) {
    chain = interrupted(chain, step, 1);
    pause = std::min<uint64_t>(2 * pause, 1024);
    // Full states go on; the next delta comes after the pause.
    uint64_t next = step;
    while (next_delta(chain, ++next) == 0) {
      chain = extended(chain, next, 0);
      ASSERT_LE(next, step + pause);
    }
    EXPECT_GE(next, step + pause);
    step = next;
  }
  // One that works: from the start again.
  chain = extended(chain, step, 1);
  chain = interrupted(chain, step + 1, 2);
  EXPECT_EQ(chain.not_before, step + 3);
  // A full state that failed says nothing about deltas.
  EXPECT_EQ(interrupted(extended({}, 4, 0), 5, 0).not_before, 0u);
}

TEST(DeltaPolicy, EverySequenceOfWrittenFailedAndOmittedSteps) {
  // Three fates of each of eight steps. A delta is right where the steps back to the full state are all
  // written.
  for (int code = 0; code < 6561; ++code) {
    DeltaChain chain;
    std::vector<int> written;  // delta number of each step, -1: none
    for (int step = 1, c = code; step <= 8; ++step, c /= 3) {
      int expected = 0;
      if (!written.empty() && written.back() >= 0 && written.back() < kMaxDeltas)
        expected = written.back() + 1;
      const int fate = c % 3;  // 0: whole, 1: failed somewhere, 2: not due
      if (fate != 2) {
        ASSERT_EQ(next_delta(chain, step), expected) << code << " step " << step;
      }
      if (fate == 0) chain = extended(chain, step, expected);
      written.push_back(fate == 0 ? expected : -1);
    }
  }
}

TEST(DeltaUpdate, ComesBackBitByBit) {
  for (uint64_t trial = 0; trial < 3000; ++trial) {
    auto number = [&](uint64_t which) {
      return std::abs(std::ldexp(random_uniform({trial, which}),
                                 static_cast<int>(random_bits({trial, which}) % 1200) - 600));
    };
    const StepUpdate update{trial + 1, number(1), number(2), number(3), trial % 2 == 0};
    EXPECT_EQ(decode_update(encode_update(update)), update);
  }
  const StepUpdate smallest{~uint64_t{0}, 5e-324, 1, std::numeric_limits<double>::max(), true};
  EXPECT_EQ(decode_update(encode_update(smallest)), smallest);
  StepUpdate left_out{7, 1e-3, 5, std::numeric_limits<double>::quiet_NaN(), false};
  EXPECT_FALSE(decode_update(encode_update(left_out)).applied);
  left_out.gradient_square = std::numeric_limits<double>::infinity();
  EXPECT_EQ(decode_update(encode_update(left_out)).step, 7u);
}

TEST(DeltaUpdate, OtherTextsAreErrors) {
  for (const char* bad :
       {"", "{}", "[]", "7", "{\"step\": 1}",
        R"({"step":0,"learning_rate":1,"label_tokens":1,"gradient_square":1,"applied":true})",
        R"({"step":1,"learning_rate":1,"label_tokens":-1,"gradient_square":1,"applied":true})",
        R"({"step":1,"learning_rate":1,"label_tokens":1,"gradient_square":-1,"applied":true})",
        R"({"step":1,"learning_rate":1,"label_tokens":1,"gradient_square":null,"applied":true})",
        R"({"step":1,"learning_rate":"x","label_tokens":1,"gradient_square":1,"applied":true})"})
    EXPECT_THROW(decode_update(bad), Error) << bad;
}

TEST(DeltaView, HoldsTheGradientAndWhatChanges) {
  TinyState state(0, 2);
  EXPECT_FALSE(view_for_delta(state.view(5)));
  StateView all = state.view_with_gradient(5);
  all.records["ledger_tail"] = "[]";
  std::optional<StateView> part = view_for_delta(all);
  ASSERT_TRUE(part);
  ASSERT_EQ(part->buffers.size(), 1u);
  EXPECT_EQ(part->buffers[0].name, "gradient.5");
  EXPECT_EQ(part->records.size(), 3u);  // update, cursor, ledger_tail
  all.step = 6;                         // the gradient of another step
  EXPECT_FALSE(view_for_delta(all));
}

// ---- runs: full states at 1, 5, 9…, deltas between ------------------------------------------

std::function<void(CheckpointSettings&, int)> level0(bool partner = false) {
  return [=](CheckpointSettings& s, int rank) {
    if (partner) s.node = "node" + std::to_string(rank);
  };
}

TinyResult train(const fs::path& folder, uint64_t until, int ranks = 2, bool partner = false) {
  TinyResult result = run_tiny({.folder = folder,
                                .ranks = ranks,
                                .until = until,
                                .adjust = level0(partner),
                                .each_step = wait_for_level0});
  for (const std::string& error : result.errors) EXPECT_EQ(error, "");
  EXPECT_TRUE(result.finished);
  return result;
}

TinyResult resume(const fs::path& folder, int ranks = 2, bool partner = false) {
  TinyResult result = run_tiny({.folder = folder,
                                .ranks = ranks,
                                .until = 0,
                                .adjust = level0(partner),
                                .each_step = {},
                                .finish = false});
  EXPECT_EQ(result.difference, "");
  return result;
}

// The file of `rank` for `name` below own/ or partner/.
fs::path file_of(const fs::path& folder, int rank, const GenerationName& name, const char* kind = "own") {
  for (const fs::path& path : files_below(folder / "ram"))
    if (path.filename() == generation_file_name(name) && path.parent_path().filename() == kind &&
        path.parent_path().parent_path().filename() == Level0Store::rank_folder(rank))
      return path;
  ADD_FAILURE() << "no " << kind << " file " << generation_file_name(name) << " of rank " << rank;
  return {};
}

TEST(Deltas, ThreeAfterEachFullStateAndSmall) {
  TemporaryFolder folder;
  const TinyResult result = train(folder.path(), 12);
  std::vector<uint64_t> bytes;
  for (const SnapshotEvent& e : result.events[0])
    if (e.kind == SnapshotEvent::Kind::kSnapshot && e.ok) bytes.push_back(e.bytes);
  ASSERT_EQ(bytes.size(), 12u);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (i % 4 != 0) {
      EXPECT_LT(bytes[i], bytes[0] / 2) << "step " << i + 1;
    }
  // What stays: two generations.
  for (int rank : {0, 1})
    for (uint64_t base : {5, 9})
      for (int delta : {0, 1, 2, 3})
        EXPECT_TRUE(fs::exists(file_of(folder.path(), rank, {base + delta, 1, delta})));
  size_t files = 0;
  for (const fs::path& path : files_below(folder.path() / "ram")) files += path.extension() == ".h5";
  EXPECT_EQ(files, 16u);
}

TEST(Deltas, AViewWithoutGradientsIsAlwaysAFullState) {
  TemporaryFolder folder;
  run_tiny({.folder = folder.path(),
            .until = 7,
            .adjust = level0(),
            .each_step = wait_for_level0,
            .gradients = false});
  for (const fs::path& path : files_below(folder.path() / "ram"))
    EXPECT_EQ(path.string().find("-delta-"), std::string::npos) << path;
  EXPECT_EQ(resume(folder.path()).resumed->step, 7u);
}

TEST(Deltas, RecoveryRollsForwardToTheLastStep) {
  for (uint64_t last = 1; last <= 9; ++last)
    for (bool partner : {false, true}) {
      TemporaryFolder folder;
      train(folder.path(), last, 2, partner);
      const TinyResult result = resume(folder.path(), 2, partner);
      ASSERT_TRUE(result.resumed);
      EXPECT_EQ(result.resumed->step, last);
      EXPECT_EQ(result.updates.size(), (last - 1) % 4);
      EXPECT_EQ(result.cursor, "{\"position\": " + std::to_string(last * 100) + "}");
    }
}

TEST(Deltas, AnyNumberOfRanksToAnyOther) {
  for (int from : {1, 2, 3, 4})
    for (int to : {1, 2, 3, 4}) {
      TemporaryFolder folder;
      train(folder.path(), 8, from);
      const TinyResult second = train(folder.path(), 11, to);
      EXPECT_EQ(second.difference, "");
      ASSERT_TRUE(second.resumed);
      EXPECT_EQ(second.resumed->step, 8u);
      EXPECT_EQ(second.updates.size(), 3u);
      // The first L0 of a start is a full state: 9, then 10 and 11.
      const TinyResult third = resume(folder.path(), from);
      ASSERT_TRUE(third.resumed);
      EXPECT_EQ(third.resumed->step, 11u);
      EXPECT_EQ(third.updates.size(), 2u);
      EXPECT_EQ(third.resumed->shards.size(), static_cast<size_t>(to));
    }
}

TEST(Deltas, WhatARunResumedFromStaysUntilItsOwnIsWhole) {
  TemporaryFolder folder;
  train(folder.path(), 7);  // 5+2
  train(folder.path(), 8);  // one full state, 8
  for (int rank : {0, 1}) {
    EXPECT_TRUE(fs::exists(file_of(folder.path(), rank, {8, 2})));
    for (int delta : {0, 1, 2}) EXPECT_TRUE(fs::exists(file_of(folder.path(), rank, {5u + delta, 1, delta})));
  }
  fs::remove(file_of(folder.path(), 1, {8, 2}));
  const TinyResult result = resume(folder.path());
  ASSERT_TRUE(result.resumed);
  EXPECT_EQ(result.resumed->step, 7u);
  EXPECT_EQ(result.resumed->attempt, 1);
}

using Damage = void (*)(const fs::path&);
void flip(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(middle);
  const char c = static_cast<char>(file.get());
  file.seekp(middle);
  file.put(static_cast<char>(c ^ 4));
}
const std::pair<const char*, Damage> kDamages[] = {
    {"flipped", flip},
    {"cut", [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) / 3); }},
    {"emptied", [](const fs::path& p) { fs::resize_file(p, 0); }},
    {"missing", [](const fs::path& p) { fs::remove(p); }},
};

TEST(Deltas, DamageToTheFullStateOrAnyDeltaOfOneRank) {
  for (auto& [what, damage] : kDamages)
    for (int rank : {0, 1})
      for (int delta : {0, 1, 2, 3}) {
        TemporaryFolder folder;
        train(folder.path(), 8);
        damage(file_of(folder.path(), rank, {5u + delta, 1, delta}));
        const TinyResult result = resume(folder.path());
        ASSERT_TRUE(result.resumed) << what;
        // The step before the damaged one; before the full state that is the older generation's last.
        EXPECT_EQ(result.resumed->step, 4u + delta) << what << " rank " << rank;
        EXPECT_EQ(result.updates.size(), delta == 0 ? 3u : delta - 1u);
        // A run goes on from there.
        const TinyResult on = train(folder.path(), 9);
        EXPECT_EQ(on.difference, "");
        EXPECT_EQ(resume(folder.path()).resumed->step, 9u);
      }
}

TEST(Deltas, APartnersCopyReplacesADamagedOne) {
  for (auto& [what, damage] : kDamages)
    for (int delta : {0, 1, 2, 3}) {
      TemporaryFolder folder;
      train(folder.path(), 8, 2, true);
      damage(file_of(folder.path(), 1, {5u + delta, 1, delta}));
      TinyResult result = resume(folder.path(), 2, true);
      ASSERT_TRUE(result.resumed) << what;
      EXPECT_EQ(result.resumed->step, 8u) << what;
      EXPECT_EQ(result.source, ShardSource::kPartner);
      damage(file_of(folder.path(), 0, {5u + delta, 1, delta}, "partner"));
      result = resume(folder.path(), 2, true);
      ASSERT_TRUE(result.resumed) << what;
      EXPECT_EQ(result.resumed->step, 4u + delta) << what;
    }
}

TEST(Deltas, AFileOfAnotherDeltaUnderThisName) {
  TemporaryFolder folder;
  train(folder.path(), 8);
  // The second delta's content under the third's name, and a delta as a full state.
  fs::copy_file(file_of(folder.path(), 0, {7, 1, 2}), file_of(folder.path(), 0, {8, 1, 3}),
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(resume(folder.path()).resumed->step, 7u);
  fs::copy_file(file_of(folder.path(), 0, {7, 1, 2}), file_of(folder.path(), 0, {5, 1}),
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(resume(folder.path()).resumed->step, 4u);
}

TEST(Deltas, AStepThatFailedSomewhereIsFollowedByAFullState) {
  TemporaryFolder folder;
  fs::path own;
  const TinyResult result = run_tiny({.folder = folder.path(),
                                      .until = 7,
                                      .adjust = [](CheckpointSettings& s, int) { s.retry_s = 0; },
                                      .each_step =
                                          [&](int rank, uint64_t step, CheckpointManager& manager) {
                                            // Step 4 writes no L0: step 3 failed only then.
                                            if (step != 4) wait_for_level0(rank, step, manager);
                                            if (rank != 1) return;
                                            if (step == 2) {
                                              own = file_of(folder.path(), 1, {1, 1}).parent_path();
                                              fs::rename(own, own.string() + ".aside");
                                              std::ofstream(own) << "in the way";
                                            } else if (step == 3) {
                                              fs::remove(own);
                                              fs::rename(own.string() + ".aside", own);
                                            }
                                          }});
  EXPECT_EQ(result.errors[0], "");
  for (int rank : {0, 1}) {
    EXPECT_TRUE(fs::exists(file_of(folder.path(), rank, {5, 1, 0})));
    EXPECT_TRUE(fs::exists(file_of(folder.path(), rank, {7, 1, 2})));
    fs::remove(file_of(folder.path(), rank, {5, 1, 0}));
  }
  // Rank 0 has step 3, rank 1 has not.
  file_of(folder.path(), 0, {3, 1, 2});
  EXPECT_EQ(resume(folder.path()).resumed->step, 2u);
}

TEST(Deltas, InspectionShowsThem) {
  TemporaryFolder folder;
  train(folder.path(), 7);
  FoundFiles found = find_run_files(folder.path() / "run", folder.path() / "ram");
  std::vector<StateSummary> states = summarise_run(found, true);
  ASSERT_EQ(states.size(), 7u);  // 7, 6, 5 and 4, 3, 2, 1
  EXPECT_EQ(states[0].step, 7u);
  EXPECT_EQ(states[0].delta, 2);
  for (const StateSummary& state : states) EXPECT_TRUE(state.whole()) << state.step;
  const std::string run = (folder.path() / "run").string(), ram = (folder.path() / "ram").string();
  // A delta is no state to look into or compare; the best full one is taken.
  EXPECT_NE(state_files(run, ram)[0].find("step-000000005"), std::string::npos);
  EXPECT_THROW(state_files(run + "@7", ram), Error);
  const StoredState delta = open_state(state_files(run + "@7", ram, true));
  ASSERT_FALSE(delta.tensors.empty());
  for (const StoredTensor& tensor : delta.tensors) {
    EXPECT_EQ(tensor.buffer, "gradient.7");
    EXPECT_TRUE(tensor.whole());
  }
  EXPECT_EQ(delta.headers[0].delta, 2);
  fs::remove(file_of(folder.path(), 0, {6, 1, 1}));
  found = find_run_files(folder.path() / "run", folder.path() / "ram");
  states = summarise_run(found, false);
  EXPECT_FALSE(states[0].whole());  // its parts are there, the step before is not
  EXPECT_EQ(states[0].parts, 2);
}

}  // namespace
}  // namespace mso::testing
