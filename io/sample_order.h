// Which samples a step trains on while nothing is late: pure functions of (seed, step), the same on every rank and never
// stored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/modality_index.h"

namespace mso {

// The samples of one step. Position p = step·N + i of the endless sample stream holds ids[i], unless samples that came
// late were trained on in another step (io/step_plan.h).
struct GlobalBatch {
  uint64_t step = 0;
  std::vector<uint64_t> positions;  // [N] increasing
  std::vector<uint64_t> ids;        // [N]; a batch that reaches over the end of an epoch may hold an id twice
  std::vector<uint64_t> epochs;     // [N]
};

// A part of a mixture: samples first … first+size-1 of the data set.
struct MixturePart {
  uint64_t first = 0, size = 0;
  uint64_t weight = 1;  // samples of this part in every block of Σ weight positions
};

class SampleOrder {
 public:
  // Shuffled anew in every epoch by a permutation keyed with (seed, epoch). n ≥ 1 samples.
  static SampleOrder shuffled(uint64_t n, uint64_t seed);
  // 0 … n-1 once, in order: for held-out samples.
  static SampleOrder sequential(uint64_t n);
  // Every batch holds `per_batch` samples of each modality; each modality is shuffled and has epochs by itself.
  // Error (kBadUsage) for a modality that is asked for and has no sample.
  static SampleOrder recipe(std::shared_ptr<const ModalityIndex> index, const PerModality<uint64_t>& per_batch, uint64_t seed);
  // Every block of Σ weight positions holds `weight` samples of each part, in an order keyed with (seed, block); each
  // part is shuffled and has epochs by itself. Error (kBadUsage) for empty parts, weights of 0 or a block above 10⁶.
  static SampleOrder mixture(std::vector<MixturePart> parts, uint64_t seed);

  uint64_t size() const { return n_; }
  bool endless() const { return kind_ != Kind::kSequential; }

  struct Place {
    uint64_t id = 0, epoch = 0;
  };
  Place at(uint64_t position) const;  // position < n for a sequential order
  uint64_t id_at(uint64_t position) const { return at(position).id; }

  // Step `step` of N = batch_samples ≥ 1 (for a recipe, the sum of per_batch). A sequential order ends with a shorter
  // batch and then empty ones.
  GlobalBatch global_batch(uint64_t step, uint64_t batch_samples) const;

 private:
  enum class Kind { kShuffled, kSequential, kRecipe, kMixture };
  SampleOrder(Kind kind, uint64_t n, uint64_t seed) : kind_(kind), n_(n), seed_(seed) {}
  Kind kind_;
  uint64_t n_, seed_;
  std::shared_ptr<const ModalityIndex> index_;
  PerModality<uint64_t> per_batch_;
  std::vector<MixturePart> parts_;
  uint64_t block_ = 0;  // Σ per_batch or Σ weight
};

// The digest written to metrics.jsonl: 16 hexadecimal digits of XXH3 over the ids (8 bytes little endian each) that are
// trained on, in the order of their positions.
std::string sample_digest(const std::vector<uint64_t>& trained_ids);

}  // namespace mso
