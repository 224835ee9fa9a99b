// L0 deltas: after a full state ("base") up to three steps that are kept as the reduced gradient alone, and
// what else the optimizer needs to do such a step again. Plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/snapshot.h"

namespace mso {

constexpr int kMaxDeltas = 3;

// Everything about one finished optimizer step but the gradient; the same on all ranks. Record "update" of a
// delta.
struct StepUpdate {
  uint64_t step = 0;  // it led to the state after `step` steps
  double learning_rate = 0;
  double label_tokens = 0;
  double gradient_square = 0;  // Σ g² over all ranks' shards
  bool applied = true;         // false: left out, for a gradient or loss that is not finite
  bool operator==(const StepUpdate&) const = default;
};
// JSON; doubles come back bit by bit (0 for a square that is not finite: such an update is left out anyway).
std::string encode_update(const StepUpdate& update);
// Error where the text is no such record or has numbers no step can have.
StepUpdate decode_update(const std::string& text);

std::string gradient_buffer_name(uint64_t step);  // "gradient.<step>"

// What all ranks know of the newest L0 snapshots, from the all-reduced flags alone.
struct DeltaChain {
  std::optional<uint64_t> base;  // step of the newest full state that is whole on all ranks
  uint64_t last = 0;             // newest step since then whose L0, base or delta, is whole on all ranks
  int failures = 0;              // deltas in a row that could not be written somewhere
  uint64_t not_before = 0;       // step of the next try after a failure
};
// What L0 writes at `step`: 0 a full state, k = 1 … kMaxDeltas the k-th delta of the base. A delta needs a
// whole base of at most kMaxDeltas steps ago and every step since then in L0.
int next_delta(const DeltaChain& chain, uint64_t step);
// The chain after an L0 snapshot of `step` (`delta` as above) has become whole on all ranks.
DeltaChain extended(DeltaChain chain, uint64_t step, int delta);
// … after it has failed on a rank. Where full states fit on the RAM disk and deltas beside them do not, these
// are tried more and more rarely (2, 4 … 1024 steps later), so that L0 stays useful.
DeltaChain interrupted(DeltaChain chain, uint64_t step, int delta);

// The part of `view` that a delta stores: the step's gradient, and the records that change from step to step.
// nullopt where the view lacks the gradient or the record "update".
std::optional<StateView> view_for_delta(const StateView& view);

}  // namespace mso
