// The buddy allocator: every small sequence of operations, and long random ones against a map of single units.
#include "memory/buddy_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>

#include "base/error.h"
#include "base/random.h"

namespace mso {
namespace {

constexpr uint64_t kUnit = BuddyMap::kSmallest;

// The same rules without free lists: who owns each unit of 64 KiB. Slow, and nothing to get wrong.
class Model {
 public:
  explicit Model(uint64_t units) : owner_(units, 0) {
    for (uint64_t at = 0; at < units; at += std::bit_floor(units - at)) roots_.push_back(at);
    roots_.push_back(units);
  }
  // Whether the block lies in one root, at a multiple of its size, and is free.
  bool fits(uint64_t unit, uint64_t count) const {
    if (unit % count != 0 || unit + count > owner_.size()) return false;
    const auto next = std::ranges::upper_bound(roots_, unit);
    if (unit + count > *next) return false;
    return std::all_of(owner_.begin() + static_cast<long>(unit), owner_.begin() + static_cast<long>(unit + count),
                       [](int owner) { return owner == 0; });
  }
  bool fits_anywhere(uint64_t count) const {
    for (uint64_t unit = 0; unit + count <= owner_.size(); unit += count)
      if (fits(unit, count)) return true;
    return false;
  }
  void set(uint64_t unit, uint64_t count, int owner) {
    std::fill_n(owner_.begin() + static_cast<long>(unit), count, owner);
  }
  uint64_t free() const { return static_cast<uint64_t>(std::ranges::count(owner_, 0)); }
  uint64_t largest() const {
    for (uint64_t count = std::bit_floor(owner_.size()); count > 0; count /= 2)
      if (fits_anywhere(count)) return count;
    return 0;
  }
  // Free units in blocks that hold `count`: joined buddies are always joined, so those are the aligned free runs.
  uint64_t usable(uint64_t count) const {
    uint64_t sum = 0;
    for (uint64_t unit = 0; unit + count <= owner_.size(); unit += count)
      if (fits(unit, count)) sum += count;
    return sum;
  }

 private:
  std::vector<int> owner_;
  std::vector<uint64_t> roots_;
};

void expect_consistent(const BuddyMap& map, const Model& model, uint64_t units) {
  ASSERT_EQ(map.free_bytes(), model.free() * kUnit);
  ASSERT_EQ(map.largest_free(), model.largest() * kUnit);
  uint64_t sum = 0, end = 0;
  const std::map<uint64_t, uint64_t> blocks = map.free_by_offset();
  for (const auto& [offset, size] : blocks) {
    ASSERT_TRUE(std::has_single_bit(size));
    ASSERT_EQ(offset % size, 0u);
    ASSERT_GE(offset, end);  // none overlap
    ASSERT_TRUE(model.fits(offset / kUnit, size / kUnit));
    // No free block could be joined with its buddy.
    ASSERT_FALSE(blocks.contains(offset ^ size) && blocks.at(offset ^ size) == size &&
                 model.fits(std::min(offset, offset ^ size) / kUnit, 2 * size / kUnit));
    end = offset + size;
    sum += size;
  }
  ASSERT_LE(end, units * kUnit);
  ASSERT_EQ(sum, map.free_bytes());
  for (uint64_t count = 1; count <= units; count *= 2) {
    const double wanted = model.free() == 0 ? 0 : 1 - double(model.usable(count)) / double(model.free());
    ASSERT_NEAR(map.unusable_share(count * kUnit), wanted, 1e-12);
  }
}

TEST(BuddyMap, BlockSizesArePowersOfTwoFrom64KiB) {
  EXPECT_EQ(BuddyMap::block_size(0), kUnit);
  EXPECT_EQ(BuddyMap::block_size(1), kUnit);
  EXPECT_EQ(BuddyMap::block_size(kUnit), kUnit);
  EXPECT_EQ(BuddyMap::block_size(kUnit + 1), 2 * kUnit);
  EXPECT_EQ(BuddyMap::block_size(3 * kUnit), 4 * kUnit);
}

TEST(BuddyMap, ACapacityIsCutIntoRoots) {
  const BuddyMap map(13 * kUnit + 5);
  EXPECT_EQ(map.capacity(), 13 * kUnit);
  EXPECT_EQ(map.free_by_offset(),
            (std::map<uint64_t, uint64_t>{{0, 8 * kUnit}, {8 * kUnit, 4 * kUnit}, {12 * kUnit, kUnit}}));
  EXPECT_EQ(map.largest_root(), 8 * kUnit);
  BuddyMap none(kUnit - 1);
  EXPECT_EQ(none.capacity(), 0u);
  EXPECT_FALSE(none.take(1));
  EXPECT_FALSE(none.take_at(0, kUnit));
  EXPECT_EQ(none.largest_free(), 0u);
}

TEST(BuddyMap, TakesTheLowestOfTheSmallestThatFit) {
  BuddyMap map(16 * kUnit);
  EXPECT_EQ(map.take(kUnit), 0u);
  EXPECT_EQ(map.take(2 * kUnit), 2 * kUnit);  // not unit 1, not the half of a larger one further up
  EXPECT_EQ(map.take(kUnit), kUnit);
  EXPECT_EQ(map.take(8 * kUnit), 8 * kUnit);
  EXPECT_FALSE(map.take(8 * kUnit));
  EXPECT_FALSE(map.take(17 * kUnit));
  EXPECT_FALSE(map.take(~uint64_t{0}));
  EXPECT_EQ(map.take(4 * kUnit), 4 * kUnit);
  EXPECT_EQ(map.free_bytes(), 0u);
  EXPECT_EQ(map.unusable_share(kUnit), 0);
}

TEST(BuddyMap, TakeAtRefusesWhatIsNoFreeBlock) {
  BuddyMap map(12 * kUnit);
  EXPECT_FALSE(map.take_at(kUnit, 2 * kUnit));       // not a multiple of its size
  EXPECT_FALSE(map.take_at(0, 3 * kUnit));           // no power of two
  EXPECT_FALSE(map.take_at(0, kUnit / 2));           // below the smallest
  EXPECT_FALSE(map.take_at(8 * kUnit, 8 * kUnit));   // beyond its root
  EXPECT_FALSE(map.take_at(12 * kUnit, kUnit));      // beyond the end
  EXPECT_TRUE(map.take_at(5 * kUnit, kUnit));
  EXPECT_FALSE(map.take_at(4 * kUnit, 2 * kUnit));
  EXPECT_FALSE(map.take_at(5 * kUnit, kUnit));
  EXPECT_TRUE(map.take_at(4 * kUnit, kUnit));
  map.give(5 * kUnit, kUnit);
  map.give(4 * kUnit, kUnit);
  EXPECT_TRUE(map.take_at(0, 8 * kUnit));
}

// Every sequence of `depth` operations on a range of few units, each state compared with the model.
void every_sequence(BuddyMap map, const Model& model, std::vector<std::pair<uint64_t, uint64_t>> held, uint64_t units,
                    int depth) {
  expect_consistent(map, model, units);
  if (depth == 0 || testing::Test::HasFatalFailure()) return;
  for (uint64_t count = 1; count <= std::bit_floor(units); count *= 2) {
    BuddyMap next = map;
    const auto offset = next.take(count * kUnit);
    ASSERT_EQ(offset.has_value(), model.fits_anywhere(count));
    if (!offset) continue;
    ASSERT_TRUE(model.fits(*offset / kUnit, count));
    Model after = model;
    after.set(*offset / kUnit, count, 1);
    auto with = held;
    with.emplace_back(*offset, count * kUnit);
    every_sequence(next, after, with, units, depth - 1);
  }
  for (size_t i = 0; i < held.size(); ++i) {
    BuddyMap next = map;
    next.give(held[i].first, held[i].second);
    Model after = model;
    after.set(held[i].first / kUnit, held[i].second / kUnit, 0);
    auto without = held;
    without.erase(without.begin() + static_cast<long>(i));
    every_sequence(next, after, without, units, depth - 1);
  }
}

TEST(BuddyMap, EverySequenceOfFiveOperations) {
  for (uint64_t units : {1, 2, 3, 5, 7, 8}) every_sequence(BuddyMap(units * kUnit), Model(units), {}, units, 5);
}

TEST(BuddyMap, LongRandomSequencesEqualTheModel) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const uint64_t units = 1 + random_bits({seed, 1}) % 70;
    BuddyMap map(units * kUnit);
    Model model(units);
    std::vector<std::pair<uint64_t, uint64_t>> held;
    for (uint64_t step = 0; step < 300; ++step) {
      const uint64_t dice = random_bits({seed, 2, step});
      if (dice % 10 < 5 || held.empty()) {
        const uint64_t bytes = 1 + random_bits({seed, 3, step}) % (units * kUnit);
        const uint64_t shrunk = std::max<uint64_t>(1, bytes >> (random_bits({seed, 4, step}) % 6));
        const uint64_t size = BuddyMap::block_size(shrunk);
        const auto offset = map.take(shrunk);
        ASSERT_EQ(offset.has_value(), model.fits_anywhere(size / kUnit));
        if (!offset) continue;
        ASSERT_TRUE(model.fits(*offset / kUnit, size / kUnit));
        model.set(*offset / kUnit, size / kUnit, 1);
        held.emplace_back(*offset, size);
      } else if (dice % 10 < 6) {
        const uint64_t size = kUnit << (random_bits({seed, 5, step}) % 5);
        const uint64_t unit = random_bits({seed, 6, step}) % units;
        const bool fits = model.fits(unit, size / kUnit);
        ASSERT_EQ(map.take_at(unit * kUnit, size), fits);
        if (!fits) continue;
        model.set(unit, size / kUnit, 1);
        held.emplace_back(unit * kUnit, size);
      } else {
        const size_t which = dice / 10 % held.size();
        map.give(held[which].first, held[which].second);
        model.set(held[which].first / kUnit, held[which].second / kUnit, 0);
        held.erase(held.begin() + static_cast<long>(which));
      }
      if (step % 7 == 0) expect_consistent(map, model, units);
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [offset, size] : held) map.give(offset, size);
    EXPECT_EQ(map.free_by_offset(), BuddyMap(units * kUnit).free_by_offset());
  }
}

TEST(BuddyAllocator, CountsReferences) {
  BuddyAllocator a(8 * kUnit);
  const uint64_t block = *a.allocate(100);
  EXPECT_EQ(a.block(block), (BuddyBlock{block, kUnit, 100, 1}));
  a.retain(block);
  EXPECT_EQ(a.release(block), 1u);
  EXPECT_EQ(a.statistics().blocks, 1u);
  EXPECT_EQ(a.release(block), 0u);
  EXPECT_EQ(a.statistics().blocks, 0u);
  EXPECT_THROW(a.release(block), Error);
  EXPECT_THROW(a.retain(block), Error);
  EXPECT_THROW(a.block(block), Error);
  EXPECT_THROW(a.release(kUnit / 2), Error);
  EXPECT_EQ(a.statistics().free_bytes, 8 * kUnit);
}

TEST(BuddyAllocator, SaysHowFragmentedItIs) {
  BuddyAllocator a(8 * kUnit);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(*a.allocate(kUnit / 2));
  EXPECT_FALSE(a.allocate(1));
  BuddyStatistics s = a.statistics();
  EXPECT_EQ(s.failures, 1u);
  EXPECT_EQ(s.allocations, 8u);
  EXPECT_DOUBLE_EQ(s.internal_fragmentation(), 0.5);
  EXPECT_DOUBLE_EQ(s.external_fragmentation(), 0);
  for (int i = 0; i < 8; i += 2) a.release(blocks[i]);
  s = a.statistics();
  EXPECT_EQ(s.free_blocks, 4u);
  EXPECT_EQ(s.block_bytes, 4 * kUnit);
  EXPECT_EQ(s.peak_block_bytes, 8 * kUnit);
  EXPECT_DOUBLE_EQ(s.external_fragmentation(), 0.75);
  EXPECT_DOUBLE_EQ(a.unusable_share(kUnit), 0);
  EXPECT_DOUBLE_EQ(a.unusable_share(2 * kUnit), 1);
  EXPECT_DOUBLE_EQ(a.unusable_share(1000 * kUnit), 1);
}

TEST(BuddyAllocator, MovesABlockWithItsReferences) {
  BuddyAllocator a(8 * kUnit);
  const uint64_t first = *a.allocate(1), second = *a.allocate(kUnit + 1);
  a.retain(second);
  EXPECT_FALSE(a.move(second, 4 * kUnit, 2 * kUnit, 1));  // has two references
  EXPECT_FALSE(a.move(second, 4 * kUnit, kUnit, 2));      // is larger
  EXPECT_FALSE(a.move(second, first, 2 * kUnit, 2));      // not free
  EXPECT_FALSE(a.move(kUnit, 4 * kUnit, kUnit, 1));       // no such block
  EXPECT_TRUE(a.move(second, 4 * kUnit, 2 * kUnit, 2));
  EXPECT_EQ(a.block(4 * kUnit), (BuddyBlock{4 * kUnit, 2 * kUnit, kUnit + 1, 2}));
  EXPECT_THROW(a.block(second), Error);
  EXPECT_EQ(a.statistics().moves, 1u);
  EXPECT_EQ(a.allocate(2 * kUnit), second);
}

// Threads take, hold and drop blocks; no unit is ever in two hands, and all comes back.
TEST(BuddyAllocator, ThreadsDoNotGetTheSameBlock) {
  constexpr uint64_t kUnits = 64;
  BuddyAllocator a(kUnits * kUnit);
  std::vector<std::atomic<int>> owners(kUnits);
  std::atomic<bool> wrong = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<BuddyBlock> held;
      auto release = [&](const BuddyBlock& block) {
        for (uint64_t u = 0; u < block.size / kUnit; ++u)
          if (owners[block.offset / kUnit + u].exchange(0) != t + 1) wrong = true;
        a.release(block.offset);
      };
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t dice = random_bits({static_cast<uint64_t>(t), i});
        if (dice % 2 == 0 || held.empty()) {
          const auto offset = a.allocate(kUnit << (dice / 2 % 4));
          if (!offset) continue;
          held.push_back(a.block(*offset));
          for (uint64_t u = 0; u < held.back().size / kUnit; ++u)
            if (owners[*offset / kUnit + u].exchange(t + 1) != 0) wrong = true;
        } else {
          const BuddyBlock block = held[dice / 2 % held.size()];
          std::erase(held, block);
          release(block);
        }
      }
      for (const BuddyBlock& block : held) release(block);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(a.statistics().free_bytes, kUnits * kUnit);
  EXPECT_EQ(a.statistics().largest_free, kUnits * kUnit);
}

}  // namespace
}  // namespace mso
