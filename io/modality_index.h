// Finds the k-th sample of a modality without a list of them all.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "io/modality.h"

namespace mso {

// Samples whose ids follow each other, and how many of them are of each modality.
struct ModalityBlock {
  uint32_t size = 0;  // at most 65536
  PerModality<uint32_t> counts;
};

// Keeps the counts before each block (40 bytes a block); a block's samples are looked through when one of them is asked
// for. Thread-safe.
class ModalityIndex {
 public:
  // `blocks`: all samples, from id 0 on.
  ModalityIndex(const std::vector<ModalityBlock>& blocks, std::function<Modality(uint64_t id)> modality_of);

  uint64_t count(Modality m) const { return counts_[m]; }
  // Id of the k-th sample of the modality, in order of ids; k < count(m). Error (kBadData) where the counts are wrong.
  uint64_t select(Modality m, uint64_t k) const;

 private:
  std::function<Modality(uint64_t)> modality_of_;
  PerModality<uint64_t> counts_;
  std::vector<uint64_t> starts_;               // [blocks + 1] first id of each block
  PerModality<std::vector<uint64_t>> before_;  // [blocks] samples of the modality before each block

  // The blocks looked through last, as a shuffled order comes back to them at random.
  struct Found {
    uint64_t block = 0;
    std::vector<uint16_t> offsets;
  };
  mutable std::mutex mutex_;
  mutable PerModality<std::vector<Found>> recent_;
  mutable uint64_t turn_ = 0;
};

}  // namespace mso
