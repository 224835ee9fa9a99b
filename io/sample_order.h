// Which samples a step trains on: pure functions of (seed, step), the same on every rank and never stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mso {

// The N samples of one step. Position p = step·N + i of the endless sample stream holds sample ids[i]; epoch = p / n.
// A batch may reach over the end of an epoch, and then hold an id twice.
struct GlobalBatch {
  uint64_t step = 0;
  uint64_t first_position = 0;
  std::vector<uint64_t> ids;     // [N]
  std::vector<uint64_t> epochs;  // [N]
};

class SampleOrder {
 public:
  // Shuffled anew in every epoch by a permutation keyed with (seed, epoch). n ≥ 1 samples.
  static SampleOrder shuffled(uint64_t n, uint64_t seed);
  // 0 … n-1 once, in order: for held-out samples.
  static SampleOrder sequential(uint64_t n);

  uint64_t size() const { return n_; }
  bool endless() const { return shuffled_; }
  uint64_t epoch_of(uint64_t position) const { return position / n_; }
  uint64_t id_at(uint64_t position) const;  // position < n for a sequential order

  // Step `step` of N = batch_samples ≥ 1. A sequential order ends with a shorter batch and then empty ones.
  GlobalBatch global_batch(uint64_t step, uint64_t batch_samples) const;

 private:
  SampleOrder(uint64_t n, uint64_t seed, bool shuffled) : n_(n), seed_(seed), shuffled_(shuffled) {}
  uint64_t n_, seed_;
  bool shuffled_;
};

// The digest written to metrics.jsonl: 16 hexadecimal digits of XXH3 over the ids (8 bytes little endian each) of the
// batch whose bit in `skipped` is not set; `skipped` is empty or has one element per id.
std::string sample_digest(const GlobalBatch& batch, const std::vector<bool>& skipped = {});

}  // namespace mso
