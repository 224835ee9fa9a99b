// Which blocks of a buddy allocator to move so that large free blocks come about: a pure plan on plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/buddy_allocator.h"

namespace mso {

struct CompactionMove {
  uint64_t from = 0, to = 0, size = 0;
  bool operator==(const CompactionMove&) const = default;
};
struct CompactionPlan {
  std::vector<CompactionMove> moves;  // in this order; each place is free when its turn comes
  uint64_t bytes = 0;                 // that are copied at most
  double before = 0, after = 0;       // BuddyMap::unusable_share() of the wanted size
};

// Empties regions of the size of a block of `wanted` bytes, those with the least in them first, into free blocks smaller than
// that elsewhere, until no more than `tolerance` of the free memory is useless for `wanted` bytes or nothing more can
// be done. Only blocks with at most `movable_references` references are moved, and no more than `most_bytes` in all.
// `map` and `blocks` are of one moment.
CompactionPlan plan_compaction(BuddyMap map, const std::vector<BuddyBlock>& blocks, uint64_t wanted, double tolerance,
                               uint32_t movable_references, uint64_t most_bytes);

}  // namespace mso
