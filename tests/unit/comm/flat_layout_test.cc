#include "comm/flat_layout.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace mso {
namespace {

// A model of random shapes: many small ones (norms, biases shorter than the number of ranks), some large.
FlatLayout random_layout(uint64_t seed) {
  std::vector<FlatTensor> tensors;
  const size_t n = 1 + random_bits({seed, 1}) % 40;
  for (size_t t = 0; t < n; ++t) {
    FlatTensor tensor;
    tensor.name = "t" + std::to_string(t);
    const uint64_t kind = random_bits({seed, 2, t}) % 4;
    const auto dim = [&](uint64_t i, uint64_t limit) {
      return int64_t(1 + random_bits({seed, 3, t, i}) % limit);
    };
    if (kind == 0) tensor.shape = {dim(0, 3)};
    if (kind == 1) tensor.shape = {dim(0, 100)};
    if (kind == 2) tensor.shape = {dim(0, 60), dim(1, 60)};
    if (kind == 3) tensor.shape = {};  // a scalar
    tensors.push_back(tensor);
  }
  return make_flat_layout(tensors);
}

TEST(FlatLayout, OffsetsAreAlignedAndTensorsDoNotOverlap) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FlatLayout layout = random_layout(seed);
    size_t end = 0;
    for (const FlatTensor& t : layout.tensors) {
      EXPECT_EQ(t.offset % 16, 0u);
      EXPECT_GE(t.offset, end);
      EXPECT_LT(t.offset, end + 16);
      end = t.offset + t.count;
    }
    EXPECT_GE(layout.size, end);
    EXPECT_EQ(layout.size % 16, 0u);
  }
}

TEST(FlatLayout, BucketsCoverTheBufferWithWholeTensorsAndAlignedParts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FlatLayout layout = random_layout(seed);
    const int ranks = 1 + random_bits({seed, 9}) % 9;
    const size_t wanted = 1 + random_bits({seed, 10}) % 5000;
    const auto buckets = plan_buckets(layout, wanted, ranks);
    size_t end = 0, tensor = 0;
    for (const Bucket& b : buckets) {
      EXPECT_EQ(b.begin, end);
      EXPECT_EQ(b.first_tensor, tensor);
      EXPECT_GT(b.last_tensor, b.first_tensor);
      EXPECT_EQ(b.begin, layout.tensors[b.first_tensor].offset);
      // No larger than asked for, but for the last tensor.
      EXPECT_LT(layout.tensors[b.last_tensor - 1].offset - b.begin, wanted);
      ASSERT_EQ(b.parts.size(), size_t(ranks) + 1);
      EXPECT_EQ(b.parts.front(), b.begin);
      EXPECT_EQ(b.parts.back(), b.end);
      size_t smallest = SIZE_MAX, largest = 0;
      for (int r = 0; r < ranks; ++r) {
        ASSERT_LE(b.parts[r], b.parts[r + 1]);
        EXPECT_EQ(b.parts[r] % 16, 0u);
        smallest = std::min(smallest, b.parts[r + 1] - b.parts[r]);
        largest = std::max(largest, b.parts[r + 1] - b.parts[r]);
      }
      EXPECT_LE(largest - smallest, 16u);
      end = b.end;
      tensor = b.last_tensor;
    }
    EXPECT_EQ(end, layout.size);
    EXPECT_EQ(tensor, layout.tensors.size());
  }
}

TEST(FlatLayout, ShardsPartitionTheBufferAndSlicesNameEveryElementOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FlatLayout layout = random_layout(seed);
    const int ranks = 1 + random_bits({seed, 9}) % 9;
    const auto buckets = plan_buckets(layout, 1 + random_bits({seed, 10}) % 5000, ranks);
    std::vector<int> owners(layout.size, 0);
    std::map<std::string, std::vector<int>> named;
    for (const FlatTensor& t : layout.tensors) named[t.name].assign(t.count, 0);
    for (int r = 0; r < ranks; ++r) {
      const Shard shard = make_shard(buckets, r);
      // Shard element → flat element, to compare the slices with.
      std::vector<size_t> flat_of(shard.size, SIZE_MAX);
      size_t end = 0;
      for (const ShardPiece& p : shard.pieces) {
        EXPECT_EQ(p.shard_offset, end);
        EXPECT_GT(p.count, 0u);
        for (size_t i = 0; i < p.count; ++i) {
          ++owners[p.flat_offset + i];
          flat_of[p.shard_offset + i] = p.flat_offset + i;
        }
        end += p.count;
      }
      EXPECT_EQ(end, shard.size);
      for (const TensorSlice& s : slices_of_shard(layout, shard)) {
        ASSERT_LT(s.begin, s.end);
        const auto it = std::find_if(layout.tensors.begin(), layout.tensors.end(),
                                     [&](const FlatTensor& t) { return t.name == s.name; });
        ASSERT_NE(it, layout.tensors.end());
        EXPECT_EQ(s.shape, it->shape);
        ASSERT_LE(s.end, it->count);
        for (uint64_t i = s.begin; i < s.end; ++i) {
          ++named[s.name][i];
          ASSERT_EQ(flat_of.at(s.offset + (i - s.begin)), it->offset + i);
        }
      }
    }
    for (int count : owners) ASSERT_EQ(count, 1);
    for (const auto& [name, counts] : named) {
      for (int count : counts) ASSERT_EQ(count, 1) << name;
    }
  }
}

TEST(FlatLayout, TensorsSmallerThanTheRanksLeaveEmptyParts) {
  const FlatLayout layout = make_flat_layout({{.name = "bias", .stage = "", .shape = {3}}, {.name = "gate", .stage = "", .shape = {}}});
  const auto buckets = plan_buckets(layout, 1, 4);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].parts, (std::vector<size_t>{0, 16, 16, 16, 16}));
  EXPECT_EQ(make_shard(buckets, 0).size, 32u);
  EXPECT_EQ(make_shard(buckets, 3).size, 0u);
  EXPECT_TRUE(slices_of_shard(layout, make_shard(buckets, 3)).empty());
}

TEST(FlatLayout, ElementsByStageAddUpOverTheRanks) {
  const FlatLayout layout = make_flat_layout({{.name = "a", .stage = "vision_encoder", .shape = {37, 5}},
                                              {.name = "b", .stage = "vision_encoder", .shape = {3}},
                                              {.name = "c", .stage = "llm_decoder", .shape = {64, 33}}});
  const std::map<std::string, uint64_t> all = elements_by_stage(layout);
  EXPECT_EQ(all, (std::map<std::string, uint64_t>{{"llm_decoder", 2112}, {"vision_encoder", 192 + 16}}));
  for (size_t bucket_elements : {size_t{1}, size_t{200}, size_t{100000}}) {
    const auto buckets = plan_buckets(layout, bucket_elements, 3);
    std::map<std::string, uint64_t> sum;
    for (int rank = 0; rank < 3; ++rank) {
      const Shard shard = make_shard(buckets, rank);
      uint64_t own = 0;
      for (const auto& [stage, elements] : elements_by_stage(layout, shard)) sum[stage] += elements, own += elements;
      EXPECT_EQ(own, shard.size);
    }
    EXPECT_EQ(sum, all);
  }
}

TEST(FlatLayout, NothingToTrainIsNoBucket) {
  EXPECT_TRUE(plan_buckets(make_flat_layout({}), 100, 2).empty());
}

}  // namespace
}  // namespace mso
