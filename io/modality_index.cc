#include "io/modality_index.h"

#include <algorithm>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kRecentBlocks = 64;
}

ModalityIndex::ModalityIndex(const std::vector<ModalityBlock>& blocks, std::function<Modality(uint64_t)> modality_of)
    : modality_of_(std::move(modality_of)), starts_{0} {
  starts_.reserve(blocks.size() + 1);
  for (Modality m : kAllModalities) before_[m].reserve(blocks.size());
  for (const ModalityBlock& block : blocks) {
    starts_.push_back(starts_.back() + block.size);
    for (Modality m : kAllModalities) {
      before_[m].push_back(counts_[m]);
      counts_[m] += block.counts[m];
    }
  }
}

uint64_t ModalityIndex::select(Modality m, uint64_t k) const {
  if (k >= counts_[m])
    throw Error("no such sample", std::string(name_of(m)) + " " + std::to_string(k) + " of " + std::to_string(counts_[m]));
  const std::vector<uint64_t>& before = before_[m];
  const uint64_t block = static_cast<uint64_t>(std::upper_bound(before.begin(), before.end(), k) - before.begin()) - 1;
  const uint64_t rank = k - before[block];
  std::lock_guard lock(mutex_);
  std::vector<Found>& recent = recent_[m];
  auto found = std::find_if(recent.begin(), recent.end(), [&](const Found& f) { return f.block == block; });
  if (found == recent.end()) {
    Found fresh{block, {}};
    for (uint64_t id = starts_[block]; id < starts_[block + 1]; ++id)
      if (modality_of_(id) == m) fresh.offsets.push_back(static_cast<uint16_t>(id - starts_[block]));
    const uint64_t told = (block + 1 < before.size() ? before[block + 1] : counts_[m]) - before[block];
    if (fresh.offsets.size() != told)
      throw Error("a shard's index counts its samples wrongly",
                  "samples " + std::to_string(starts_[block]) + " to " + std::to_string(starts_[block + 1] - 1) + ": " +
                      std::to_string(told) + " of " + name_of(m) + " by its counts, " + std::to_string(fresh.offsets.size()) +
                      " by its samples",
                  "remove the .idx files beside the shards; they are made anew at the next use", ExitCode::kBadData);
    if (recent.size() < kRecentBlocks) {
      recent.push_back(std::move(fresh));
      found = recent.end() - 1;
    } else {
      found = recent.begin() + static_cast<std::ptrdiff_t>(turn_++ % kRecentBlocks);
      *found = std::move(fresh);
    }
  }
  return starts_[block] + found->offsets[rank];
}

}  // namespace mso
