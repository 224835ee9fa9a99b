#include "io/modality_index.h"

#include <algorithm>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kRecentBlocks = 64;
}

ModalityIndex::ModalityIndex(uint64_t samples, std::function<Modality(uint64_t)> modality_of)
    : samples_(samples), modality_of_(std::move(modality_of)) {
  for (uint64_t id = 0; id < samples_; ++id) {
    if (id % kBlock == 0)
      for (Modality m : kAllModalities) before_[m].push_back(counts_[m]);
    ++counts_[modality_of_(id)];
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
    for (uint64_t id = block * kBlock; id < std::min(samples_, (block + 1) * kBlock); ++id)
      if (modality_of_(id) == m) fresh.offsets.push_back(static_cast<uint16_t>(id - block * kBlock));
    if (recent.size() < kRecentBlocks) {
      recent.push_back(std::move(fresh));
      found = recent.end() - 1;
    } else {
      found = recent.begin() + static_cast<std::ptrdiff_t>(turn_++ % kRecentBlocks);
      *found = std::move(fresh);
    }
  }
  return block * kBlock + found->offsets.at(rank);
}

}  // namespace mso
