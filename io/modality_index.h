// Finds the k-th sample of a modality without a list of them all.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "io/modality.h"

namespace mso {

// Counts per block of ids are kept (a few bytes per thousand samples); a block's samples are looked through when one of
// them is asked for. Thread-safe.
class ModalityIndex {
 public:
  ModalityIndex(uint64_t samples, std::function<Modality(uint64_t id)> modality_of);

  uint64_t count(Modality m) const { return counts_[m]; }
  uint64_t select(Modality m, uint64_t k) const;  // id of the k-th sample of the modality, in order of ids; k < count(m)

 private:
  static constexpr uint64_t kBlock = 4096;
  uint64_t samples_;
  std::function<Modality(uint64_t)> modality_of_;
  PerModality<uint64_t> counts_;
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
