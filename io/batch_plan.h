// Deals the samples of a global batch to ranks and packs a rank's samples into micro-batches. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/modality.h"

namespace mso {

// Work of a sample in positions: known from the index before anything is read.
struct SampleCost {
  int64_t picture = 0;  // positions filled by media, 0 for text only
  int64_t text = 0;     // estimated text tokens
  int64_t total() const { return picture + text; }
};

// Deals sample i of `costs` to a rank; result[r] lists r's samples in increasing order. Samples with pictures go first,
// largest first, each to the rank with the least picture work (of these, the least work in all; of these, the lowest
// rank); then texts, longest first, each to the rank with the least work: longest-processing-time-first, within 4/3 of
// the best (Graham 1969). Counts of equally large pictures differ by at most one between ranks. No sample is lost or
// doubled; with at least `ranks` samples of cost ≥ 1 none stays empty when all have pictures or all are text.
std::vector<std::vector<size_t>> deal_to_ranks(const std::vector<SampleCost>& costs, int ranks);

struct PackedSample {
  int64_t positions = 0;
  Modality modality = Modality::kText;
};
struct MicroBatchLimits {
  int64_t positions = 4096;
  PerModality<uint64_t> samples;  // of a modality; 0: as many as there is room for
};
// Packs samples into micro-batches within the limits: first-fit decreasing (longest first, equal ones in order, each into
// the first that has room), so that never more than 11/9 of the least number +1 are needed where positions alone decide.
// A sample longer than a micro-batch gets one of its own. Inside a micro-batch samples keep their order.
std::vector<std::vector<size_t>> pack_micro_batches(const std::vector<PackedSample>& samples, const MicroBatchLimits& limits);

}  // namespace mso
