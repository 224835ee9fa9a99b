// Dealing and packing: nothing lost or doubled, limits kept, work equal; sample order: every epoch a permutation.
#include "io/batch_plan.h"


#include <gtest/gtest.h>

#include <map>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/random.h"
#include "base/error.h"
#include "io/sample_order.h"

namespace mso {
namespace {

std::vector<SampleCost> random_costs(size_t n, uint64_t seed) {
  std::vector<SampleCost> costs(n);
  for (size_t i = 0; i < n; ++i) {
    costs[i].picture = random_bits({seed, i, 0}) % 3 == 0 ? 0 : 196;
    costs[i].text = 1 + static_cast<int64_t>(random_bits({seed, i, 1}) % 60);
  }
  return costs;
}

TEST(DealToRanks, GivesEverySampleToOneRankAndIsBalanced) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const size_t n = random_bits({seed, 7}) % 40;
    const int ranks = 1 + static_cast<int>(random_bits({seed, 8}) % 9);
    const auto costs = random_costs(n, seed);
    const auto dealt = deal_to_ranks(costs, ranks);
    ASSERT_EQ(dealt.size(), static_cast<size_t>(ranks));
    std::set<size_t> seen;
    int64_t least_pictures = INT64_MAX, most_pictures = 0, least = INT64_MAX, most = 0, largest = 0;
    for (const auto& samples : dealt) {
      ASSERT_TRUE(std::is_sorted(samples.begin(), samples.end()));
      int64_t pictures = 0, work = 0;
      for (size_t i : samples) {
        ASSERT_TRUE(seen.insert(i).second);
        pictures += costs[i].picture > 0;
        work += costs[i].total();
      }
      least_pictures = std::min(least_pictures, pictures);
      most_pictures = std::max(most_pictures, pictures);
      least = std::min(least, work);
      most = std::max(most, work);
    }
    for (const auto& cost : costs) largest = std::max(largest, cost.total());
    ASSERT_EQ(seen.size(), n);
    EXPECT_LE(most_pictures - least_pictures, 1) << seed;
    EXPECT_LE(most - least, largest + 60 * 2) << seed;
  }
}

TEST(DealToRanks, NoRankStaysEmptyWhileThereIsEnough) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const auto& samples : deal_to_ranks(std::vector<SampleCost>(8, {0, 5}), ranks)) EXPECT_FALSE(samples.empty());
    for (const auto& samples : deal_to_ranks(std::vector<SampleCost>(8, {9, 5}), ranks)) EXPECT_FALSE(samples.empty());
  }
  EXPECT_EQ(deal_to_ranks({{1, 1}}, 3), (std::vector<std::vector<size_t>>{{0}, {}, {}}));
  EXPECT_EQ(deal_to_ranks({}, 2), (std::vector<std::vector<size_t>>{{}, {}}));
}

TEST(DealToRanks, WithinFourThirdsOfTheBest) {
  // Graham 1969: 5,5,4,4,3,3,3 on 3 ranks is the worst case: 11 against 9.
  const std::vector<int64_t> work = {5, 5, 4, 4, 3, 3, 3};
  std::vector<SampleCost> costs;
  for (int64_t w : work) costs.push_back({0, w});
  int64_t most = 0;
  for (const auto& samples : deal_to_ranks(costs, 3)) {
    int64_t sum = 0;
    for (size_t i : samples) sum += work[i];
    most = std::max(most, sum);
  }
  EXPECT_EQ(most, 11);
}

TEST(PackMicroBatches, ExhaustivelyKeepsTheLimitAndLosesNothing) {
  // All lists of up to 6 lengths of 1 … 5 with limits 1 … 8.
  for (int n = 0; n <= 6; ++n) {
    int combinations = 1;
    for (int i = 0; i < n; ++i) combinations *= 5;
    for (int code = 0; code < combinations; ++code) {
      std::vector<PackedSample> lengths;
      for (int i = 0, rest = code; i < n; ++i, rest /= 5) lengths.push_back({1 + rest % 5, Modality::kText});
      for (int64_t limit = 1; limit <= 8; ++limit) {
        const auto packs = pack_micro_batches(lengths, {limit, {}});
        std::vector<int> seen(lengths.size(), 0);
        int64_t all = 0;
        for (const auto& pack : packs) {
          ASSERT_FALSE(pack.empty());
          ASSERT_TRUE(std::is_sorted(pack.begin(), pack.end()));
          int64_t sum = 0;
          for (size_t i : pack) {
            ++seen[i];
            sum += lengths[i].positions;
          }
          ASSERT_TRUE(sum <= limit || pack.size() == 1);
          all += sum;
        }
        ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](int s) { return s == 1; }));
        // Any two packs together overflow, else first-fit would have joined them.
        for (size_t a = 0; a + 1 < packs.size(); ++a) {
          int64_t sum = 0;
          for (size_t i : packs[a]) sum += lengths[i].positions;
          for (size_t i : packs[a + 1]) sum += lengths[i].positions;
          ASSERT_GT(sum, limit);
        }
      }
    }
  }
}

TEST(PackMicroBatches, CountsSamplesOfEachModality) {
  // All lists of up to 5 samples of two modalities and lengths 1 … 3 with all small limits.
  for (int n = 0; n <= 5; ++n) {
    int combinations = 1;
    for (int i = 0; i < n; ++i) combinations *= 6;
    for (int code = 0; code < combinations; ++code) {
      std::vector<PackedSample> samples;
      for (int i = 0, rest = code; i < n; ++i, rest /= 6)
        samples.push_back({1 + rest % 3, rest % 6 < 3 ? Modality::kText : Modality::kImage});
      for (uint64_t texts = 0; texts <= 3; ++texts)
        for (uint64_t images = 0; images <= 3; ++images) {
          MicroBatchLimits limits{4, {}};
          limits.samples[Modality::kText] = texts;
          limits.samples[Modality::kImage] = images;
          const auto packs = pack_micro_batches(samples, limits);
          std::vector<int> seen(samples.size(), 0);
          for (const auto& pack : packs) {
            int64_t positions = 0;
            PerModality<uint64_t> of;
            for (size_t i : pack) ++seen[i], positions += samples[i].positions, ++of[samples[i].modality];
            ASSERT_LE(positions, 4);
            ASSERT_TRUE(texts == 0 || of[Modality::kText] <= texts);
            ASSERT_TRUE(images == 0 || of[Modality::kImage] <= images);
          }
          ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](int s) { return s == 1; }));
          // Where nothing but a modality's limit divides them there are exactly as many as it needs.
          const auto pictures = static_cast<uint64_t>(std::ranges::count(samples, Modality::kImage, &PackedSample::modality));
          if (images > 0 && pictures == samples.size() && pictures <= 4 && std::ranges::all_of(samples, [](auto& s) { return s.positions == 1; })) {
            ASSERT_EQ(packs.size(), (pictures + images - 1) / images);
          }
        }
    }
  }
}

TEST(SampleOrder, EveryEpochHoldsEverySampleOnce) {
  for (uint64_t n : {1u, 2u, 3u, 7u, 64u, 100u}) {
    const SampleOrder order = SampleOrder::shuffled(n, 5);
    for (uint64_t batch : {1u, 3u, 8u, 150u}) {
      std::vector<int> seen(n, 0);
      const uint64_t epochs = 3;
      uint64_t p = 0;
      for (uint64_t step = 0; p < n * epochs; ++step) {
        const GlobalBatch global = order.global_batch(step, batch);
        ASSERT_EQ(global.ids.size(), batch);
        ASSERT_EQ(global.positions.front(), step * batch);
        for (uint64_t i = 0; i < batch && p < n * epochs; ++i, ++p) {
          ASSERT_EQ(global.epochs[i], p / n);
          ++seen.at(global.ids[i]);
          if ((p + 1) % n != 0) continue;
          for (int count : seen) ASSERT_EQ(count, static_cast<int>(p / n) + 1);
        }
      }
    }
  }
}

TEST(SampleOrder, AMixtureIsExactInEveryBlockAndEachPartHasItsEpochs) {
  const SampleOrder order = SampleOrder::mixture({{0, 10, 7}, {10, 4, 2}, {14, 1, 1}}, 3);
  std::map<uint64_t, int> seen;
  for (uint64_t block = 0; block < 20; ++block) {
    int counts[3] = {};
    for (uint64_t i = 0; i < 10; ++i) {
      const auto place = order.at(block * 10 + i);
      ++counts[place.id < 10 ? 0 : place.id < 14 ? 1 : 2];
      ++seen[place.id];
    }
    EXPECT_EQ(counts[0], 7);
    EXPECT_EQ(counts[1], 2);
    EXPECT_EQ(counts[2], 1);
  }
  for (auto [id, times] : seen) EXPECT_EQ(times, id < 10 ? 14 : id < 14 ? 10 : 20);
  EXPECT_THROW(SampleOrder::mixture({{0, 10, 0}}, 3), Error);
  EXPECT_THROW(SampleOrder::mixture({}, 3), Error);
  EXPECT_THROW(SampleOrder::mixture({{0, 1, 999'999}, {1, 1, 2}}, 3), Error);
}

TEST(ModalityIndex, FindsTheKthOfEachModality) {
  const auto modality_of = [](uint64_t id) { return static_cast<Modality>((id * id + id / 7) % 4); };
  std::vector<ModalityBlock> blocks;  // of odd sizes, some empty
  for (uint64_t id = 0, k = 0; id < 20'000; ++k) {
    ModalityBlock& block = blocks.emplace_back();
    block.size = static_cast<uint32_t>(std::min<uint64_t>(20'000 - id, k % 5 == 0 ? 0 : k * 37 % 4096 + 1));
    for (uint64_t end = id + block.size; id < end; ++id) ++block.counts[modality_of(id)];
  }
  const ModalityIndex index(blocks, modality_of);
  PerModality<uint64_t> k;
  for (uint64_t id = 0; id < 20'000; ++id) {
    const Modality m = modality_of(id);
    ASSERT_EQ(index.select(m, k[m]), id);
    ++k[m];
  }
  for (Modality m : kAllModalities) {
    EXPECT_EQ(index.count(m), k[m]);
    EXPECT_THROW(index.select(m, k[m]), Error);
  }
  PerModality<uint64_t> recipe;
  recipe[Modality::kVideo] = 1;
  std::vector<ModalityBlock> one_kind(1);
  one_kind[0].size = one_kind[0].counts[Modality::kText] = 3;
  EXPECT_THROW(SampleOrder::recipe(std::make_shared<ModalityIndex>(one_kind, [](uint64_t) { return Modality::kText; }), recipe, 1), Error);
}

TEST(ModalityIndex, RefusesCountsThatTheSamplesDoNotBear) {
  std::vector<ModalityBlock> blocks(2);
  for (ModalityBlock& block : blocks) block.size = 10, block.counts[Modality::kImage] = 4, block.counts[Modality::kText] = 6;
  const ModalityIndex index(blocks, [](uint64_t id) { return id < 14 ? Modality::kImage : Modality::kText; });
  EXPECT_EQ(index.select(Modality::kImage, 7), 13u);
  EXPECT_THROW(index.select(Modality::kImage, 0), Error);
  EXPECT_THROW(index.select(Modality::kText, 1), Error);
}

TEST(SampleOrder, ChangesWithSeedAndEpoch) {
  const auto ids = [](uint64_t seed, uint64_t step) { return SampleOrder::shuffled(100, seed).global_batch(step, 100).ids; };
  EXPECT_EQ(ids(1, 0), ids(1, 0));
  EXPECT_NE(ids(1, 0), ids(2, 0));
  EXPECT_NE(ids(1, 0), ids(1, 1));
}

TEST(SampleOrder, SequentialEnds) {
  const SampleOrder order = SampleOrder::sequential(5);
  EXPECT_EQ(order.global_batch(0, 3).ids, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(order.global_batch(1, 3).ids, (std::vector<uint64_t>{3, 4}));
  EXPECT_TRUE(order.global_batch(2, 3).ids.empty());
}

TEST(SampleDigest, IsTheHashOfTheIds) {
  EXPECT_NE(sample_digest({1, 2, 3}), sample_digest({1, 3}));
  EXPECT_EQ(sample_digest({1, 2, 3}), "7c68b4906e7ea780");  // xxhash.xxh3_64_hexdigest(struct.pack('<3Q', 1, 2, 3))
}

}  // namespace
}  // namespace mso
