#include "io/sample_order.h"

#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace mso {

namespace {

constexpr uint64_t kLargestBlock = 1'000'000;
// Keep the streams of a recipe and of a mixture apart from each other and from the plain shuffle's (seed, epoch).
constexpr uint64_t kRecipeStream = 0x7265636970650000, kMixtureStream = 0x6d69787475726500, kMixtureBlocks = 0x6d69780062000000;

uint64_t shuffled_place(uint64_t n, uint64_t key, uint64_t k) { return KeyedPermutation(n, key)(k); }

}  // namespace

SampleOrder SampleOrder::shuffled(uint64_t n, uint64_t seed) {
  if (n == 0) throw Error("no samples to order", "data set", "", ExitCode::kBadData);
  return SampleOrder(Kind::kShuffled, n, seed);
}

SampleOrder SampleOrder::sequential(uint64_t n) {
  if (n == 0) throw Error("no samples to order", "data set", "", ExitCode::kBadData);
  return SampleOrder(Kind::kSequential, n, 0);
}

SampleOrder SampleOrder::recipe(std::shared_ptr<const ModalityIndex> index, const PerModality<uint64_t>& per_batch,
                                uint64_t seed) {
  SampleOrder order(Kind::kRecipe, 0, seed);
  for (Modality m : kAllModalities) {
    if (per_batch[m] > 0 && index->count(m) == 0)
      throw Error("the recipe asks for a modality that no sample of the data has",
                  std::string("mdp.batch_recipe.") + name_of(m), "`mso data stat` counts them", ExitCode::kBadUsage);
    if (per_batch[m] > 0) order.n_ += index->count(m);
    order.block_ += per_batch[m];
  }
  if (order.block_ == 0) throw Error("the recipe is empty", "mdp.batch_recipe", "", ExitCode::kBadUsage);
  order.index_ = std::move(index);
  order.per_batch_ = per_batch;
  return order;
}

SampleOrder SampleOrder::mixture(std::vector<MixturePart> parts, uint64_t seed) {
  SampleOrder order(Kind::kMixture, 0, seed);
  for (const MixturePart& part : parts) {
    if (part.size == 0 || part.weight == 0)
      throw Error("a part of the mixture is empty or has no weight", "data.mixture", "", ExitCode::kBadUsage);
    order.n_ += part.size;
    order.block_ += part.weight;
  }
  if (parts.empty() || order.block_ > kLargestBlock)
    throw Error("the weights of the mixture have no small common measure", "data.mixture",
                "use weights such as 7 and 3", ExitCode::kBadUsage);
  order.parts_ = std::move(parts);
  return order;
}

SampleOrder::Place SampleOrder::at(uint64_t position) const {
  switch (kind_) {
    case Kind::kSequential: return {position, 0};
    case Kind::kShuffled: {
      const uint64_t epoch = position / n_;
      return {shuffled_place(n_, random_bits({seed_, epoch}), position % n_), epoch};
    }
    case Kind::kRecipe: {
      uint64_t slot = position % block_;
      for (Modality m : kAllModalities) {
        const uint64_t quota = per_batch_[m];
        if (slot >= quota) {
          slot -= quota;
          continue;
        }
        const uint64_t k = position / block_ * quota + slot, n = index_->count(m), epoch = k / n;
        const uint64_t key = random_bits({seed_, kRecipeStream + static_cast<uint64_t>(m), epoch});
        return {index_->select(m, shuffled_place(n, key, k % n)), epoch};
      }
      break;
    }
    case Kind::kMixture: {
      const uint64_t block = position / block_;
      uint64_t slot = shuffled_place(block_, random_bits({seed_, kMixtureBlocks, block}), position % block_);
      for (size_t part = 0; part < parts_.size(); ++part) {
        const MixturePart& p = parts_[part];
        if (slot >= p.weight) {
          slot -= p.weight;
          continue;
        }
        const uint64_t k = block * p.weight + slot, epoch = k / p.size;
        const uint64_t key = random_bits({seed_, kMixtureStream + part, epoch});
        return {p.first + shuffled_place(p.size, key, k % p.size), epoch};
      }
      break;
    }
  }
  throw Error("the order of samples has a gap", "position " + std::to_string(position));
}

GlobalBatch SampleOrder::global_batch(uint64_t step, uint64_t batch_samples) const {
  GlobalBatch batch;
  batch.step = step;
  for (uint64_t i = 0; i < batch_samples; ++i) {
    const uint64_t position = step * batch_samples + i;
    if (!endless() && position >= n_) break;
    const Place place = at(position);
    batch.positions.push_back(position);
    batch.ids.push_back(place.id);
    batch.epochs.push_back(place.epoch);
  }
  return batch;
}

std::string sample_digest(const std::vector<uint64_t>& trained_ids) {
  std::string bytes;
  for (uint64_t id : trained_ids)
    for (int b = 0; b < 8; ++b) bytes.push_back(static_cast<char>(id >> (8 * b)));
  return hex64(hash64(bytes));
}

}  // namespace mso
