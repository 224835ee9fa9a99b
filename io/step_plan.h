// Which samples a step takes when some come late: pure functions, so that all ranks (and a resumed run, from the ledger)
// decide alike.
//
// A batch holds as many samples of each modality as its nominal batch (io/sample_order.h) does. A sample that is late is
// deferred: the next of its modality takes its slot, from up to kStandInSteps batches ahead, and it comes in a later batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "io/modality.h"

namespace mso {

// How many nominal batches ahead a stand-in may come from.
inline constexpr uint64_t kStandInSteps = 4;
// A sample deferred for so many steps is waited for, so that none starves.
inline constexpr uint64_t kMostDeferredSteps = 16;

struct BatchItem {
  uint64_t position = 0, id = 0, epoch = 0;
  Modality modality = Modality::kText;
  int owner = 0;  // the rank that decodes it: dealt with its nominal batch
};
using NominalBatch = std::vector<BatchItem>;  // by position
// Nominal batch of a step; empty beyond the end of a sequential order.
using NominalBatches = std::function<const NominalBatch&(uint64_t step)>;

// Where the stream of samples stands before a step. Both lists are empty while nothing was late.
struct OrderState {
  uint64_t step = 0;
  std::vector<uint64_t> deferred;  // positions before step·N not trained on yet, increasing
  std::vector<uint64_t> ahead;     // positions from step·N on trained on already, increasing

  bool operator==(const OrderState&) const = default;
};

// What a rank tells of a sample it owns, as one byte: 0 for a good sample, kLate, or why it cannot be used (reason_code()
// below 32) and which of the stand-ins by similarity replaces it (1 … 3; 0: it is left out).
inline constexpr uint8_t kLate = 0xff;
inline constexpr uint8_t fate_code(uint8_t reason, int replacement) { return static_cast<uint8_t>(reason | replacement << 5); }
inline constexpr uint8_t reason_of_fate(uint8_t code) { return code & 31; }
inline constexpr int replacement_of_fate(uint8_t code) { return code >> 5; }

// Samples that a step may take, by position: first the due ones (deferred, then the nominal batch's), which are taken or
// deferred; then those that may stand in.
struct StepCandidates {
  uint64_t step = 0;
  std::vector<BatchItem> items;
  size_t due = 0;                // items[0 … due)
  std::vector<bool> must;        // [due] deferred for too long: taken, however late
  PerModality<uint64_t> quota;   // samples of each modality that the step takes
};
StepCandidates candidates_of(const OrderState& state, const NominalBatches& nominal, uint64_t batch_samples,
                             uint64_t stand_in_steps = kStandInSteps);

struct Deferral {
  size_t item = 0;                    // index in StepCandidates::items
  std::optional<size_t> stand_in;     // likewise; none where a sample deferred earlier took its slot
  bool operator==(const Deferral&) const = default;
};

struct StepDecision {
  std::vector<size_t> chosen;        // increasing; as many of each modality as its quota
  std::vector<size_t> awaited;       // of these, the late ones that nothing can stand in for
  std::vector<Deferral> deferred;    // late due items that are not chosen

  bool operator==(const StepDecision&) const = default;
};
// `codes` [items]. Of each modality the first that are not late are taken; too few: the first late due ones as well.
StepDecision decide(const StepCandidates& candidates, std::span<const uint8_t> codes);

OrderState after(const OrderState& state, const StepCandidates& candidates, const StepDecision& decision,
                 uint64_t batch_samples);

}  // namespace mso
