// Shares that lend, plans of compaction, and the arena that follows them: contents stay, whoever holds a block.
#include "memory/batch_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "memory/compaction.h"

namespace mso {
namespace {

constexpr uint64_t kUnit = BuddyMap::kSmallest;

const std::vector<MemoryShare> kShares = {{"image", 0.45, 0.12}, {"text", 0.30, 0.08}, {"audio", 0.25, 0.15}, {"video", 0, 0.15}};

TEST(ModalityShares, DivideTheWhole) {
  const ModalityShares shares(1000, kShares);
  const auto use = shares.use();
  ASSERT_EQ(use.size(), 4u);
  EXPECT_EQ(use[0].name, "image");
  EXPECT_EQ(use[0].share, 450u);
  EXPECT_EQ(use[1].share, 300u);
  EXPECT_EQ(use[2].share, 250u);
  EXPECT_EQ(use[3].share, 0u);
}

TEST(ModalityShares, BorrowFromWhoHasMostAndReturnThatFirst) {
  ModalityShares shares(1000, kShares);
  EXPECT_TRUE(shares.take(0, 400));
  EXPECT_EQ(shares.use()[0].borrowed, 0u);
  EXPECT_TRUE(shares.take(0, 100));  // 50 of its own, 50 of text, which has most
  EXPECT_EQ(shares.use()[0].borrowed, 50u);
  EXPECT_EQ(shares.use()[1].lent, 50u);
  EXPECT_TRUE(shares.take(1, 300));  // text has lent 50 and borrows them from audio
  EXPECT_EQ(shares.use()[1].borrowed, 50u);
  EXPECT_EQ(shares.use()[2].lent, 50u);
  EXPECT_FALSE(shares.take(3, 201));
  EXPECT_EQ(shares.use()[3].refused, 1u);
  EXPECT_EQ(shares.use()[3].used, 0u);
  EXPECT_TRUE(shares.take(3, 200));  // all of it borrowed: video has no share
  EXPECT_FALSE(shares.take(2, 1));   // audio has lent everything
  shares.give(0, 60);
  EXPECT_EQ(shares.use()[0].borrowed, 0u);
  EXPECT_EQ(shares.use()[0].used, 440u);
  EXPECT_EQ(shares.use()[1].lent, 0u);
  EXPECT_TRUE(shares.take(2, 60));
  EXPECT_EQ(shares.use()[3].peak, 200u);
  EXPECT_THROW(shares.give(3, 201), Error);
}

TEST(ModalityShares, WhatNobodyClaimsIsLent) {
  ModalityShares shares(1000, {{"image", 0.1, 0.1}});
  EXPECT_TRUE(shares.take(0, 1000));
  EXPECT_EQ(shares.use()[0].borrowed, 900u);
  EXPECT_FALSE(shares.take(0, 1));
  shares.give(0, 1000);
  EXPECT_EQ(shares.use()[0].borrowed, 0u);
}

TEST(ModalityShares, RefuseClaimsBeyondTheWhole) {
  EXPECT_THROW(ModalityShares(1000, {{"a", 0.6, 0}, {"b", 0.5, 0}}), Error);
  EXPECT_THROW(ModalityShares(1000, {{"a", -0.1, 0}}), Error);
  EXPECT_NO_THROW(ModalityShares(1000, {{"a", 0.1, 0}, {"b", 0.2, 0}, {"c", 0.7, 0}}));
}

// used = own + borrowed for each, all loans are somebody's, nothing is charged twice, and what is free can be had.
TEST(ModalityShares, LongRandomSequencesAddUp) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ModalityShares shares(1000, kShares);
    std::vector<std::vector<uint64_t>> held(4);
    for (uint64_t step = 0; step < 2000; ++step) {
      const uint64_t dice = random_bits({seed, step});
      auto& mine = held[dice % 4];
      const uint64_t used = std::accumulate(held.begin(), held.end(), uint64_t{0}, [](uint64_t sum, const auto& list) {
        return std::accumulate(list.begin(), list.end(), sum);
      });
      if (dice / 4 % 2 == 0 || mine.empty()) {
        const uint64_t bytes = 1 + dice / 8 % 200;
        ASSERT_EQ(shares.take(dice % 4, bytes), used + bytes <= 1000);
        if (used + bytes <= 1000) mine.push_back(bytes);
      } else {
        shares.give(dice % 4, mine.back());
        mine.pop_back();
      }
      uint64_t borrowed = 0, lent = 0;
      const auto use = shares.use();
      for (size_t p = 0; p < 4; ++p) {
        ASSERT_EQ(use[p].used, std::accumulate(held[p].begin(), held[p].end(), uint64_t{0}));
        ASSERT_LE(use[p].borrowed, use[p].used);
        ASSERT_LE(use[p].used - use[p].borrowed + use[p].lent, use[p].share);
        borrowed += use[p].borrowed, lent += use[p].lent;
      }
      ASSERT_EQ(borrowed, lent);
    }
  }
}

TEST(CompactionPlan, EmptiesTheRegionWithLeastInIt) {
  BuddyAllocator a(8 * kUnit);
  std::vector<uint64_t> units;
  for (int i = 0; i < 8; ++i) units.push_back(*a.allocate(kUnit));
  for (int i : {1, 2, 4, 6, 7}) a.release(units[i]);  // left: 0, 3, 5
  EXPECT_DOUBLE_EQ(a.unusable_share(4 * kUnit), 1);
  const CompactionPlan plan = plan_compaction(a.map(), a.blocks(), 4 * kUnit, 0.2, 1, ~uint64_t{0});
  EXPECT_EQ(plan.moves, (std::vector<CompactionMove>{{5 * kUnit, kUnit, kUnit}}));
  EXPECT_EQ(plan.bytes, kUnit);
  EXPECT_DOUBLE_EQ(plan.before, 1);
  EXPECT_DOUBLE_EQ(plan.after, 0.2);
}

TEST(CompactionPlan, LeavesHeldBlocksAndLimitsAlone) {
  BuddyAllocator a(8 * kUnit);
  std::vector<uint64_t> units;
  for (int i = 0; i < 8; ++i) units.push_back(*a.allocate(kUnit));
  for (int i : {1, 2, 4, 6, 7}) a.release(units[i]);
  a.retain(5 * kUnit);  // held: the other half has to give way, which does not fit beside it... it does: two units
  const CompactionPlan other = plan_compaction(a.map(), a.blocks(), 4 * kUnit, 0, 1, ~uint64_t{0});
  EXPECT_EQ(other.bytes, 2 * kUnit);
  for (const CompactionMove& move : other.moves) EXPECT_LT(move.from, 4 * kUnit);
  EXPECT_TRUE(plan_compaction(a.map(), a.blocks(), 4 * kUnit, 0, 1, kUnit).moves.empty());  // two are too many bytes
  EXPECT_TRUE(plan_compaction(a.map(), a.blocks(), 4 * kUnit, 1, 1, ~uint64_t{0}).moves.empty());  // tolerated
  EXPECT_TRUE(plan_compaction(a.map(), a.blocks(), 16 * kUnit, 0, 1, ~uint64_t{0}).moves.empty());  // never fits
  a.retain(0);
  EXPECT_TRUE(plan_compaction(a.map(), a.blocks(), 4 * kUnit, 0, 1, ~uint64_t{0}).moves.empty());
}

// Whatever the state: each move is possible in its turn, held blocks stay, and the result is as foretold and no worse.
TEST(CompactionPlan, RandomStatesEndAsForetold) {
  uint64_t planned = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const uint64_t units = 8 + random_bits({seed, 1}) % 57;
    BuddyAllocator a(units * kUnit);
    std::vector<uint64_t> offsets;
    while (const auto offset = a.allocate(kUnit << (random_bits({seed, 2, offsets.size()}) % 3))) offsets.push_back(*offset);
    for (size_t i = 0; i < offsets.size(); ++i) {
      const uint64_t dice = random_bits({seed, 3, i}) % 10;
      if (dice < 6) a.release(offsets[i]);
      if (dice == 9) a.retain(offsets[i]);
    }
    const std::vector<BuddyBlock> before = a.blocks();
    const uint64_t wanted = kUnit << (1 + random_bits({seed, 4}) % 4);
    const CompactionPlan plan = plan_compaction(a.map(), before, wanted, 0.05, 1, ~uint64_t{0});
    ASSERT_DOUBLE_EQ(plan.before, a.unusable_share(wanted));
    ASSERT_LE(plan.after, plan.before);
    for (const CompactionMove& move : plan.moves) ASSERT_TRUE(a.move(move.from, move.to, move.size, 1));
    ASSERT_DOUBLE_EQ(a.unusable_share(wanted), plan.after);
    ASSERT_EQ(a.blocks().size(), before.size());
    for (const BuddyBlock& block : before) {
      if (block.references > 1) {
        ASSERT_EQ(a.block(block.offset), block);
      }
    }
    planned += plan.moves.size();
  }
  EXPECT_GT(planned, 300u);
}

std::vector<std::byte> pattern(size_t size, uint64_t key) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i += 997) bytes[i] = static_cast<std::byte>(random_bits({key, i}));
  return bytes;
}
void fill(HostBytes& bytes, uint64_t key) {
  const auto wanted = pattern(bytes.size(), key);
  std::memcpy(bytes.data(), wanted.data(), wanted.size());
}
bool holds(const HostBytes& bytes, uint64_t key) {
  const auto wanted = pattern(bytes.size(), key);
  return std::ranges::equal(bytes, wanted);
}

TEST(BatchArena, GivesAndTakesBack) {
  const auto arena = BatchArena::make(16 * kUnit, kShares);
  HostBytes a = arena->allocate(kUnit + 1, 0);
  EXPECT_EQ(a.size(), kUnit + 1);
  std::byte* const address = a.data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 4096, 0u);
  EXPECT_EQ(arena->use().parts[0].used, 2 * kUnit);
  HostBytes moved = std::move(a);
  EXPECT_EQ(moved.data(), address);
  EXPECT_TRUE(a.empty());
  const HostBytes copy = moved;  // on the heap
  EXPECT_NE(copy.data(), address);
  EXPECT_EQ(arena->use().blocks.blocks, 1u);
  moved = HostBytes();
  EXPECT_EQ(arena->use().blocks.blocks, 0u);
  EXPECT_EQ(arena->use().parts[0].used, 0u);
  EXPECT_EQ(arena->allocate(kUnit, 1).data(), address);  // the same memory again
  EXPECT_TRUE(arena->allocate(0, 1).empty());
}

TEST(BatchArena, WhatDoesNotFitIsOnTheHeap) {
  const auto arena = BatchArena::make(4 * kUnit, kShares);
  HostBytes first = arena->allocate(2 * kUnit, 0), second = arena->allocate(2 * kUnit, 1);
  HostBytes third = arena->allocate(100, 2), huge = arena->allocate(5 * kUnit, 2);
  fill(third, 1);
  fill(huge, 2);
  EXPECT_TRUE(holds(third, 1) && holds(huge, 2));
  const BatchMemoryUse use = arena->use();
  EXPECT_EQ(use.overflows, 2u);
  EXPECT_EQ(use.overflow_bytes, 100 + 5 * kUnit);
  EXPECT_EQ(use.parts[2].refused, 2u);
  EXPECT_EQ(use.parts[2].used, 0u);
  EXPECT_EQ(use.parts[0].borrowed, 2 * kUnit - uint64_t(0.45 * 4 * double(kUnit)));
}

TEST(BatchArena, OutlivesItsPool) {
  HostBytes bytes;
  {
    const auto arena = BatchArena::make(4 * kUnit, kShares);
    bytes = arena->allocate(100, 0);
  }
  fill(bytes, 3);
  EXPECT_TRUE(holds(bytes, 3));
}

TEST(BatchArena, CompactsParkedBlocksAtAStepBoundary) {
  const auto arena = BatchArena::make(8 * kUnit, {{"image", 1, 0.12}});
  std::vector<HostBytes> units;
  for (int i = 0; i < 8; ++i) {
    units.push_back(arena->allocate(kUnit, 0));
    fill(units.back(), static_cast<uint64_t>(i));
  }
  for (int i : {1, 2, 4, 6, 7}) units[i] = HostBytes();
  (void)arena->allocate(4 * kUnit, 0);  // does not fit: this is what is wanted from now on
  EXPECT_EQ(arena->use().overflows, 1u);

  std::byte* const held = units[5].data();
  arena->step_boundary();  // all are held
  EXPECT_EQ(arena->use().compactions, 0u);
  EXPECT_DOUBLE_EQ(arena->use().fragmentation[0], 1);
  for (int i : {0, 3, 5}) units[i].park();
  arena->step_boundary();
  EXPECT_EQ(arena->use().compactions, 1u);
  EXPECT_EQ(arena->use().compacted_bytes, kUnit);
  EXPECT_NE(units[5].data(), held);
  for (int i : {0, 3, 5}) EXPECT_TRUE(holds(units[i], static_cast<uint64_t>(i)));
  HostBytes large = arena->allocate(4 * kUnit, 0);
  EXPECT_EQ(arena->use().overflows, 1u);  // it fits now
  large = HostBytes();
  units.clear();
  EXPECT_EQ(arena->use().blocks.free_bytes, 8 * kUnit);
  EXPECT_EQ(arena->use().blocks.blocks, 0u);
}

TEST(BatchArena, RefusesSharesBeforeItTakesMemory) {
  EXPECT_THROW(BatchArena::make(1 << 20, {{"a", 0.6, 0}, {"b", 0.6, 0}}), Error);
}

// Threads fill, park, read and drop blocks while step boundaries move the parked ones about.
TEST(BatchArena, ContentsSurviveThreadsAndBoundaries) {
  const auto arena = BatchArena::make(32 * kUnit, {{"image", 0.5, 0.0}, {"text", 0.5, 0.0}});
  std::atomic<bool> wrong = false, done = false;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::pair<HostBytes, uint64_t>> mine;
      for (uint64_t i = 0; i < 400; ++i) {
        const uint64_t dice = random_bits({t, i});
        if (mine.size() < 6 && dice % 3 != 0) {
          mine.emplace_back(arena->allocate(1 + dice / 8 % (3 * kUnit), t % 2), dice);
          fill(mine.back().first, dice);
          if (dice / 4 % 2) mine.back().first.park();
        } else if (!mine.empty()) {
          const size_t which = dice / 8 % mine.size();
          if (!holds(mine[which].first, mine[which].second)) wrong = true;
          if (dice / 4 % 2)
            mine[which].first.park();
          else
            mine.erase(mine.begin() + static_cast<long>(which));
        }
      }
    });
  std::thread boundaries([&] {
    while (!done) arena->step_boundary();
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  boundaries.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(arena->use().blocks.blocks, 0u);
  for (const MemoryShareUse& part : arena->use().parts) EXPECT_EQ(part.used, 0u);
}

}  // namespace
}  // namespace mso
