// How much memory a rank and how much space each snapshot level will take: estimates from the model's
// summary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "plan/model_summary.h"

namespace mso {

// Bytes of one stage on one rank.
struct StageMemory {
  std::string name;
  int64_t weights = 0;       // float32, trainable and frozen
  int64_t compute_copy = 0;  // bfloat16 copy of them, with train.precision: bf16
  int64_t gradients = 0;     // float32
  int64_t optimizer = 0;     // this rank's shard of master weights and two moments
  int64_t activations = 0;   // of a full micro-batch made of images, of an audio encoder's made of sounds
  int64_t total() const { return weights + compute_copy + gradients + optimizer + activations; }
};

// Bytes of one rank.
struct MemoryEstimate {
  std::vector<StageMemory> stages;
  int64_t kept_gradients = 0;  // last three reduced gradient shards and the one being filled
  int64_t staging = 0;         // private copy that levels 1 and 2 are written from
  int64_t buckets = 0;         // gradients on their way
  int64_t decoded_ahead = 0;   // pictures of the batches decoded ahead
  int64_t total() const;
};
MemoryEstimate estimate_memory(const ModelSummary& model, const Config& config, int ranks);

// Bytes of the snapshots of one level; the largest shard stands for every rank's.
struct LevelSize {
  bool on = false;
  double interval_s = 0;
  int64_t rank_generation = 0;   // one rank, one generation (level 0: a full state and three deltas)
  int64_t node_kept = 0;         // level 0: all generations of a node's ranks, partner copies included
  int64_t total_generation = 0;  // all ranks, one generation
  int64_t total_kept = 0;        // all ranks, all generations, partner copies included
  // Written by all ranks together at the configured interval, partner copies included. Level 0: full states alone,
  // as where steps are shorter than the interval.
  double bytes_per_s = 0;
  // Level 0: the average over a generation, as where steps are as long as the interval or longer: one full state and
  // three deltas in four steps.
  double delta_bytes_per_s = 0;
};
struct SnapshotSizes {
  LevelSize level0, level1, level2;
  bool partner = false;  // level 0 has a copy on another node
};
// `nodes` ≥ 1 divide the ranks as evenly as they can.
SnapshotSizes estimate_snapshots(const ModelSummary& model, const Config& config, int ranks, int nodes);

}  // namespace mso
