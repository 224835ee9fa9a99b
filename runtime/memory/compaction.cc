#include "memory/compaction.h"

#include <algorithm>
#include <map>
#include <optional>

namespace mso {

namespace {

// A region that could become one free block.
struct Region {
  uint64_t offset = 0, used = 0;
  std::vector<BuddyBlock> blocks;
};

// Regions with something in them that can all be moved, those that cost least first; of equal ones the highest, so that
// memory fills from below.
std::vector<Region> candidates(const std::vector<BuddyBlock>& blocks, uint64_t region_size, uint64_t capacity,
                               uint32_t movable_references) {
  std::map<uint64_t, Region> regions;
  std::map<uint64_t, bool> fixed;
  for (const BuddyBlock& block : blocks) {
    const uint64_t at = block.offset / region_size * region_size;
    Region& region = regions[at];
    region.offset = at;
    region.used += block.size;
    region.blocks.push_back(block);
    if (block.references > movable_references || block.size >= region_size) fixed[at] = true;
  }
  std::vector<Region> list;
  for (auto& [at, region] : regions)
    if (!fixed[at] && at + region_size <= capacity) list.push_back(std::move(region));
  std::ranges::sort(list, [](const Region& a, const Region& b) {
    return a.used != b.used ? a.used < b.used : a.offset > b.offset;
  });
  for (Region& region : list)
    std::ranges::sort(region.blocks, [](const BuddyBlock& a, const BuddyBlock& b) {
      return a.size != b.size ? a.size > b.size : a.offset < b.offset;
    });
  return list;
}

// The smallest free block that takes `size`, is smaller than a region and outside the one that is emptied.
std::optional<uint64_t> place_for(const BuddyMap& map, uint64_t size, uint64_t region, uint64_t region_size) {
  std::optional<uint64_t> best;
  uint64_t best_size = region_size;
  for (const auto& [offset, free] : map.free_by_offset()) {
    if (free < size || free >= best_size || offset / region_size * region_size == region) continue;
    best = offset;
    best_size = free;
  }
  return best;
}

}  // namespace

CompactionPlan plan_compaction(BuddyMap map, const std::vector<BuddyBlock>& blocks, uint64_t wanted, double tolerance,
                               uint32_t movable_references, uint64_t most_bytes) {
  CompactionPlan plan;
  plan.before = plan.after = map.unusable_share(wanted);
  if (wanted > map.largest_root()) return plan;
  const uint64_t region_size = BuddyMap::block_size(wanted);
  // What was moved into a region makes its list of blocks old: such regions are left for the next time.
  std::vector<uint64_t> filled;
  for (const Region& region : candidates(blocks, region_size, map.capacity(), movable_references)) {
    if (plan.after <= tolerance) break;
    if (plan.bytes + region.used > most_bytes) continue;
    if (std::ranges::find(filled, region.offset) != filled.end()) continue;
    BuddyMap trial = map;
    std::vector<CompactionMove> moves;
    for (const BuddyBlock& block : region.blocks) {
      const std::optional<uint64_t> to = place_for(trial, block.size, region.offset, region_size);
      if (!to) break;
      trial.take_at(*to, block.size);
      moves.push_back({block.offset, *to, block.size});
    }
    if (moves.size() != region.blocks.size()) continue;
    for (const CompactionMove& move : moves) trial.give(move.from, move.size);
    const double after = trial.unusable_share(wanted);
    if (after >= plan.after) continue;
    map = std::move(trial);
    for (const CompactionMove& move : moves) {
      filled.push_back(move.to / region_size * region_size);
      plan.bytes += move.size;
    }
    plan.moves.insert(plan.moves.end(), moves.begin(), moves.end());
    plan.after = after;
  }
  return plan;
}

}  // namespace mso
