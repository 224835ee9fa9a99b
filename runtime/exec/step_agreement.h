// What all ranks must agree on in every step, as two small all-reduces: before training, which samples are bad and
// whether a rank was asked to end; after backward, the global sums and the checkpoint manager's flags. Encoding and decoding are pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ckpt/progress.h"
#include "comm/communicator.h"

namespace mso {

// Before a step trains. Combined over ranks by bitwise or.
struct StepOpening {
  std::vector<uint8_t> codes;      // [candidates] of DataLoader::open(): what the owner of each says of it
  bool stop = false;               // a rank received SIGUSR1, SIGTERM or SIGINT
  std::vector<uint64_t> encode() const;
  static StepOpening decode(const std::vector<uint64_t>& words, size_t positions);
  bool operator==(const StepOpening&) const = default;
};
StepOpening agree_on_opening(Communicator& group, const StepOpening& mine, double timeout_s);

// After backward. Combined over ranks by summing in the order of ranks.
struct StepSums {
  double gradient_square = 0;  // Σ g² over this rank's shard of the summed gradients
  double loss = 0;             // Σ cross entropy
  double labels = 0, positions = 0, samples = 0;
  std::array<double, kProgressFlagCount> checkpoint{};  // ckpt/progress.h
};
StepSums sum_over_ranks(Communicator& group, const StepSums& mine, double timeout_s);

}  // namespace mso
