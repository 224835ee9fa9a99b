// The pure decisions: when to snapshot, what the ranks' flags mean, who keeps whose copy, which generation
// goes, which state to resume from.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/kill_point.h"
#include "base/random.h"
#include "ckpt/kill_points.h"
#include "ckpt/level0_store.h"
#include "ckpt/partner.h"
#include "ckpt/progress.h"
#include "ckpt/shared_store.h"
#include "ckpt/snapshot_policy.h"
#include "ckpt/state_choice.h"

namespace mso {
namespace {

TEST(Policy, WhenASnapshotIsDue) {
  LevelClock clock{30, 100, 0, 0, 5};
  EXPECT_FALSE(is_due(clock, 129.9, false));
  EXPECT_TRUE(is_due(clock, 130, false));
  EXPECT_FALSE(is_due(clock, 1000, true));  // the previous one still drains
  clock.last_write_s = 14.9;                // less than half of the interval
  EXPECT_TRUE(is_due(clock, 130, false));
  clock.last_write_s = 40;  // stretched to 80
  EXPECT_FALSE(is_due(clock, 179.9, false));
  EXPECT_TRUE(is_due(clock, 180, false));
  EXPECT_FALSE(is_due({-1, 0, 0, 0, 5}, 1e9, false));   // off
  EXPECT_TRUE(is_due({0, 100, 50, 0, 5}, 100, false));  // every step
}

TEST(Policy, RetriesBackOff) {
  LevelClock clock{0, 100, 0, 1, 5};
  double last = 0;
  for (int failures : {1, 2, 3, 4, 5, 6}) {
    clock.failures = failures;
    EXPECT_DOUBLE_EQ(retry_delay(clock), 5.0 * (1 << (failures - 1)));
    EXPECT_GT(retry_delay(clock), last);
    last = retry_delay(clock);
    EXPECT_FALSE(is_due(clock, 100 + last - 0.01, false));
    EXPECT_TRUE(is_due(clock, 100 + last, false));
  }
  clock.failures = 1000000;
  EXPECT_DOUBLE_EQ(retry_delay(clock), 300);
  clock = {600, 100, 0, 1, 5};  // never sooner than the interval
  EXPECT_DOUBLE_EQ(retry_delay(clock), 600);
}

TEST(Progress, FlagsSurviveTheAllReduce) {
  ProgressFlags sum;
  std::array<double, kProgressFlagCount> total{};
  int64_t ProgressFlags::*fields[] = {&ProgressFlags::l0_finished,     &ProgressFlags::l0_failed,
                                      &ProgressFlags::shared_finished, &ProgressFlags::shared_failed,
                                      &ProgressFlags::commit_finished, &ProgressFlags::commit_failed,
                                      &ProgressFlags::attempt_lost};
  for (int rank = 0; rank < 1024; ++rank) {
    ProgressFlags flags;
    for (size_t i = 0; i < std::size(fields); ++i) sum.*fields[i] += flags.*fields[i] = (rank >> i) & 1;
    for (int level = 0; level < 3; ++level) sum.wish[level] += flags.wish[level] = (rank >> (7 + level)) & 1;
    EXPECT_EQ(decode_flags(encode_flags(flags)), flags);
    auto encoded = encode_flags(flags);
    for (size_t i = 0; i < encoded.size(); ++i) total[i] += encoded[i];
  }
  EXPECT_EQ(decode_flags(total), sum);
}

TEST(Progress, Verdict) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (int finished = 0; finished <= ranks; ++finished)
      for (int failed = 0; finished + failed <= ranks; ++failed)
        EXPECT_EQ(verdict(finished, failed, ranks), finished == ranks            ? Verdict::kCommit
                                                    : finished + failed == ranks ? Verdict::kDrop
                                                                                 : Verdict::kWait);
}

TEST(Partners, EveryArrangementOfSixRanksOnFourNodes) {
  EXPECT_TRUE(choose_partners({"a"}).empty());
  for (int n = 2; n <= 6; ++n) {
    int arrangements = 1;
    for (int i = 0; i < n; ++i) arrangements *= 4;
    for (int code = 0; code < arrangements; ++code) {
      std::vector<std::string> nodes;
      std::map<std::string, int> on_node;
      for (int r = 0, c = code; r < n; ++r, c /= 4)
        ++on_node[nodes.emplace_back(1, static_cast<char>('a' + c % 4))];
      std::vector<int> partners = choose_partners(nodes);
      ASSERT_EQ(partners.size(), nodes.size());
      EXPECT_EQ(std::set<int>(partners.begin(), partners.end()).size(), nodes.size());
      int away = 0, largest = 0;
      for (auto& [node, ranks] : on_node) largest = std::max(largest, ranks);
      for (int r = 0; r < n; ++r) {
        EXPECT_NE(partners[r], r);
        away += nodes[partners[r]] != nodes[r];
      }
      // No permutation can do better: of the largest node only as many can leave as there are ranks
      // elsewhere.
      EXPECT_EQ(away, std::min(n, 2 * (n - largest))) << code;
    }
  }
}

TEST(Generations, Names) {
  GenerationName name{123, 2};
  EXPECT_EQ(generation_file_name(name), "step-000000123-attempt-0002.h5");
  EXPECT_EQ(parse_generation_name("step-000000123-attempt-0002.h5"), name);
  EXPECT_EQ(parse_generation_name(generation_file_name({12345678901, 123456})),
            (GenerationName{12345678901, 123456}));
  const GenerationName delta{123, 2, 3};
  EXPECT_EQ(generation_file_name(delta), "step-000000123-attempt-0002-delta-3.h5");
  EXPECT_EQ(parse_generation_name("step-000000123-attempt-0002-delta-3.h5"), delta);
  EXPECT_EQ(delta.base(), (GenerationName{120, 2}));
  for (const char* bad :
       {"step-000000123-attempt-0002-delta-0.h5", "step-000000123-attempt-0002-delta-4.h5",
        "step-000000123-attempt-0002-delta-.h5", "step-000000123-attempt-0002-delta-12.h5",
        "step-000000123-attempt-0002-delta-1", "step-000000123-delta-1-attempt-0002.h5",
        "step-000000001-attempt-0002-delta-2.h5", "step-000000123-attempt-0002-delta-1-delta-1.h5"})
    EXPECT_FALSE(parse_generation_name(bad)) << bad;
  for (const char* bad :
       {"", "step-123-attempt-0002.h5", "step-000000123-attempt-0002.h5.bak", "step-000000123-attempt-2.h5",
        "step-000000123-attempt-.h5", "step-000000123.h5", "step--00000123-attempt-0002.h5",
        "step-0000000123-attempt-0002.h5", "xstep-000000123-attempt-0002.h5", "step-000000123-attempt-0002",
        "step-00000012x-attempt-0002.h5", "step-999999999999999999999-attempt-0002.h5", "-attempt-.h5"})
    EXPECT_FALSE(parse_generation_name(bad)) << bad;
}

TEST(Generations, RotationNeverTouchesTheNewestWholeOne) {
  auto reuse = [](std::vector<GenerationName> present, std::optional<GenerationName> protect) {
    return plan_rotation(std::move(present), protect);
  };
  EXPECT_FALSE(reuse({}, std::nullopt).reuse);
  EXPECT_FALSE(reuse({{5, 1}}, std::nullopt).reuse);
  EXPECT_FALSE(reuse({{5, 1}}, GenerationName{5, 1}).reuse);
  EXPECT_EQ(reuse({{5, 1}, {6, 1}}, GenerationName{6, 1}).reuse, (GenerationName{5, 1}));
  // The newer file was never whole on all ranks: it goes, not the older one.
  EXPECT_EQ(reuse({{5, 1}, {6, 1}}, GenerationName{5, 1}).reuse, (GenerationName{6, 1}));
  // An older start's files go first, whatever their step.
  EXPECT_EQ(reuse({{200, 1}, {120, 2}}, std::nullopt).reuse, (GenerationName{200, 1}));
  RotationPlan many = reuse({{1, 1}, {2, 1}, {3, 1}, {4, 1}}, GenerationName{1, 1});
  EXPECT_EQ(many.reuse, (GenerationName{2, 1}));
  EXPECT_EQ(many.remove, (std::vector<GenerationName>{{3, 1}, {4, 1}}));
}

TEST(Generations, DeltasGoAndStayWithTheirFullState) {
  using Names = std::vector<GenerationName>;
  const Names all = {{5, 1}, {6, 1, 1}, {7, 1, 2}, {8, 1, 3}, {9, 1}, {10, 1, 1}};
  RotationPlan plan = plan_rotation(all, GenerationName{9, 1});
  EXPECT_EQ(plan.reuse, (GenerationName{5, 1}));
  EXPECT_EQ(plan.spare, (Names{{6, 1, 1}, {7, 1, 2}, {8, 1, 3}}));
  EXPECT_TRUE(plan.remove.empty());
  // The newer full state was never whole: it goes, with what was written after it.
  plan = plan_rotation(all, GenerationName{5, 1});
  EXPECT_EQ(plan.reuse, (GenerationName{9, 1}));
  EXPECT_EQ(plan.spare, (Names{{10, 1, 1}}));
  // One full state: nothing of it goes.
  plan = plan_rotation({{5, 1}, {6, 1, 1}}, GenerationName{5, 1});
  EXPECT_FALSE(plan.reuse);
  EXPECT_TRUE(plan.spare.empty());
  // Deltas of full states that are not there, and of another start's state of the same step.
  plan = plan_rotation({{2, 1, 1}, {3, 1, 2}, {5, 2}, {6, 1, 1}, {6, 2, 1}, {7, 1, 2}}, GenerationName{5, 2});
  EXPECT_FALSE(plan.reuse);
  EXPECT_EQ(plan.spare, (Names{{2, 1, 1}, {3, 1, 2}, {6, 1, 1}}));
  EXPECT_EQ(plan.remove, (Names{{7, 1, 2}}));
}

TEST(SharedNames, OnlyOurOwn) {
  EXPECT_EQ(step_folder(123), "step-000000123");
  EXPECT_EQ(parse_step_folder("step-000000123"), 123u);
  EXPECT_EQ(parse_step_folder("step-1234567890"), 1234567890u);
  for (const char* bad :
       {"step-100", "step-100.backup", "step-000000123.backup", "step-000000123.tmp-1", "step-0000000123",
        "step-00000012a", "step-", "", "Step-000000123", "step-99999999999999999999999"})
    EXPECT_FALSE(parse_step_folder(bad)) << bad;
  EXPECT_TRUE(is_temporary_folder("step-000000123.tmp-1"));
  EXPECT_TRUE(is_temporary_folder("step-000000123.tmp-2-old"));
  EXPECT_FALSE(is_temporary_folder("step-100.tmp-1"));
  EXPECT_FALSE(is_temporary_folder("step-000000123"));
  EXPECT_FALSE(is_temporary_folder("mine.tmp-1"));
}

TEST(Prune, KeepsThisStartsNewestThenWhatItResumedFrom) {
  using Steps = std::vector<uint64_t>;
  EXPECT_EQ(states_to_prune({}, 2, 1, std::nullopt), Steps{});
  EXPECT_EQ(states_to_prune({{10, 1}, {20, 1}}, 2, 1, std::nullopt), Steps{});
  EXPECT_EQ(states_to_prune({{10, 1}, {20, 1}, {30, 1}}, 2, 1, std::nullopt), (Steps{10}));
  EXPECT_EQ(states_to_prune({{10, 1}, {20, 1}, {30, 1}}, 0, 1, std::nullopt), (Steps{10, 20}));  // one stays
  // Start 2 resumed from 150, because 200 was damaged: 150 stays until start 2 has two of its own.
  EXPECT_EQ(states_to_prune({{150, 1}, {160, 2}, {200, 1}}, 2, 2, 150), (Steps{200}));
  EXPECT_EQ(states_to_prune({{150, 1}, {160, 2}, {170, 2}}, 2, 2, 150), (Steps{150}));
  EXPECT_EQ(states_to_prune({{140, 1}, {145, 1}, {160, 2}, {200, 0}}, 2, 2, 150), (Steps{140, 200}));
  EXPECT_EQ(states_to_prune({{150, 1}, {160, 2}, {200, 1}}, 3, 2, 150), Steps{});
}

// ---- the choice ---------------------------------------------------------------------------

ShardFile file(SnapshotLevel level, uint64_t step, int64_t attempt, int writer, int writers,
               bool valid = true, bool exact = true) {
  ShardFile f;
  f.level = level;
  f.step = step;
  f.attempt = attempt;
  f.writer = writer;
  f.writers = writers;
  f.valid = valid;
  f.exact = exact;
  f.source = level == SnapshotLevel::kL0 ? ShardSource::kOwn : ShardSource::kShared;
  f.holder = level == SnapshotLevel::kL0 ? writer : -1;
  f.path = std::to_string(step) + "/" + std::to_string(writer);
  return f;
}

constexpr SnapshotLevel L0 = SnapshotLevel::kL0, L1 = SnapshotLevel::kL1, L2 = SnapshotLevel::kL2;

TEST(Choice, Table) {
  EXPECT_FALSE(choose_state({}));
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2)}));
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2), file(L0, 5, 1, 1, 2, false)}));
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2), file(L0, 6, 1, 1, 2)}));  // two steps
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2), file(L0, 5, 2, 1, 2)}));  // two starts
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2), file(L0, 5, 1, 1, 3)}));  // two world sizes
  EXPECT_FALSE(choose_state({file(L0, 5, 1, 0, 2), file(L1, 5, 1, 1, 2)}));  // two levels
  auto newest = choose_state({file(L0, 5, 1, 0, 1), file(L2, 7, 1, 0, 1), file(L1, 6, 1, 0, 1)});
  EXPECT_EQ(newest->step, 7u);
  EXPECT_EQ(choose_state({file(L2, 5, 1, 0, 1), file(L1, 5, 1, 0, 1), file(L0, 5, 1, 0, 1)})->level, L0);
  EXPECT_EQ(choose_state({file(L2, 5, 1, 0, 1), file(L1, 5, 1, 0, 1)})->level, L1);
  EXPECT_EQ(choose_state({file(L0, 5, 1, 0, 1), file(L0, 5, 2, 0, 1)})->attempt, 2);
  // Without optimizer state: behind any that has it, still better than nothing.
  EXPECT_EQ(choose_state({file(L1, 9, 1, 0, 1, true, false), file(L2, 5, 1, 0, 1)})->step, 5u);
  EXPECT_FALSE(choose_state({file(L1, 9, 1, 0, 1, true, false)})->exact);
  // The newest is not whole: the next.
  auto next = choose_state({file(L0, 9, 1, 0, 2), file(L0, 8, 1, 0, 2), file(L0, 8, 1, 1, 2)});
  EXPECT_EQ(next->step, 8u);
  ASSERT_EQ(next->shards.size(), 2u);
  EXPECT_EQ(next->shards[1].writer, 1);
}

TEST(Choice, CopiesOfAShard) {
  ShardFile own = file(L0, 5, 1, 0, 1), partner = own, elsewhere = own;
  partner.source = ShardSource::kPartner;
  partner.holder = 1;
  elsewhere.holder = 2;
  EXPECT_EQ(choose_state({partner, elsewhere, own})->shards[0].holder, 0);
  own.valid = false;
  EXPECT_EQ(choose_state({partner, own})->shards[0].source, ShardSource::kPartner);
  elsewhere.valid = false;
  partner.valid = false;
  EXPECT_FALSE(choose_state({partner, elsewhere, own}));
}

// Against the plain definition, on every way two states of two shards with a partner copy each can be
// damaged, and on many random lists in any order.
TEST(Choice, EqualsTheDefinitionOnRandomLists) {
  for (uint64_t trial = 0; trial < 4000; ++trial) {
    uint64_t n = 0;
    auto pick = [&](uint64_t below) { return random_bits({trial, n++}) % below; };
    std::vector<ShardFile> files;
    const size_t count = pick(14);
    for (size_t i = 0; i < count; ++i) {
      const int writers = 1 + static_cast<int>(pick(2));
      files.push_back(file(static_cast<SnapshotLevel>(pick(3)), 1 + pick(3), 1 + pick(2),
                           static_cast<int>(pick(writers)), writers, pick(4) != 0, pick(5) != 0));
      if (files.back().level == L0 && pick(2)) files.back().delta = static_cast<int>(pick(4));
    }
    // The definition: over all (exact, step, attempt, level, writers), which are whole; the best of them.
    std::optional<std::tuple<bool, uint64_t, int64_t, int>> best;
    for (const ShardFile& f : files) {
      bool whole = true;
      for (int delta = f.delta; delta >= 0; --delta) {
        std::set<int> have;
        for (const ShardFile& g : files)
          if (g.valid && g.exact == f.exact && g.step + f.delta == f.step + delta && g.delta == delta &&
              g.attempt == f.attempt && g.level == f.level && g.writers == f.writers)
            have.insert(g.writer);
        whole = whole && static_cast<int>(have.size()) == f.writers;
      }
      if (!whole) continue;
      std::tuple key(f.exact, f.step, f.attempt, -static_cast<int>(f.level));
      if (!best || key > *best) best = key;
    }
    auto choice = choose_state(files);
    ASSERT_EQ(choice.has_value(), best.has_value()) << trial;
    if (choice) {
      EXPECT_EQ(std::tuple(choice->exact, choice->step, choice->attempt, -static_cast<int>(choice->level)),
                *best);
      for (size_t w = 0; w < choice->shards.size(); ++w)
        EXPECT_EQ(choice->shards[w].writer, static_cast<int>(w));
    }
    std::reverse(files.begin(), files.end());
    auto again = choose_state(files);
    ASSERT_EQ(again.has_value(), choice.has_value());
    if (again) EXPECT_EQ(again->shards.back().path, choice->shards.back().path);
  }
}

TEST(KillPoint, Orders) {
  KillOrder order = parse_kill_order("l0_begin");
  EXPECT_EQ(order.point, "l0_begin");
  EXPECT_EQ(order.count, 1);
  EXPECT_EQ(order.rank, -1);
  order = parse_kill_order("l0_begin:12@3");
  EXPECT_EQ(order.count, 12);
  EXPECT_EQ(order.rank, 3);
  EXPECT_EQ(parse_kill_order("x@0").rank, 0);
  for (const char* bad : {"", ":2", "x:", "x:0", "x:-1", "x@", "x@a", "x:2a", "@1"})
    EXPECT_THROW(parse_kill_order(bad), Error) << bad;
}

TEST(KillPoint, TableHasEachNameOnce) {
  std::set<std::string_view> names;
  for (const KillPoint& point : kKillPoints) EXPECT_TRUE(names.insert(point.name).second) << point.name;
}

}  // namespace
}  // namespace mso
