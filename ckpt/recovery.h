// After a start: find the best state that is valid on all ranks together, and load it into any number of
// ranks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint_manager.h"
#include "ckpt/delta.h"
#include "ckpt/settings.h"
#include "ckpt/state_choice.h"
#include "comm/communicator.h"

namespace mso {

struct FoundFiles {
  std::vector<ShardFile> files;
  std::vector<std::string> unknown;  // paths of what is not a snapshot of this run
};
// Collective. What all ranks together see of a run's snapshots; headers and manifests are checked, not the
// bulk.
FoundFiles list_snapshot_files(const CheckpointSettings& settings, Communicator& group);

struct FoundState {
  StateChoice choice;
  // Of the first writer: "cursor", "config", "plan"…; what the last delta says replaces the full state's.
  std::map<std::string, std::string> records;
  std::vector<StepUpdate> updates;  // one for each of choice.deltas
  double seconds = 0;               // listing, verifying, choosing
  ResumedFrom resumed() const {
    return {choice.level, choice.step, choice.attempt, static_cast<int>(choice.deltas.size())};
  }
};

// Collective. Every rank lists what it can read (all rank directories of this run on its node's RAM disk, its
// share of the shared storage), all choose the same state, verify every byte of it and read its records.
// nullopt: nothing was ever written, start fresh. Damaged files are named in warnings. Error kNoValidState
// where snapshots were written but none is whole and valid.
std::optional<FoundState> find_state(const CheckpointSettings& settings, Communicator& group);

// A buffer of this rank's new shard, to be filled.
struct TargetBuffer {
  std::string name;  // "master", "exp_avg"…
  DType dtype = DType::kF32;
  void* data = nullptr;
  size_t count = 0;                 // elements; those in no slice (padding) become 0
  std::vector<TensorSlice> slices;  // slices_of_shard() of the new layout
  bool required = true;  // false: left out of the state → all 0, named in LoadReport::missing_buffers
};

struct LoadReport {
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;                       // of the choice, its deltas included
  ShardSource source = ShardSource::kOwn;  // the farthest any needed shard came from
  double seconds = 0;
  uint64_t bytes = 0;                        // that this rank copied into its targets
  std::vector<std::string> missing_buffers;  // not required and not there
};

// Collective. Fills `targets` from the full state of the choice, whatever number of ranks wrote it: a rank that alone needs a
// file it holds reads it, other RAM-disk files are broadcast by their holder in pieces of at most 64 MiB,
// shared files are read by whoever needs them. Error on all ranks, naming the tensor, where one is missing or
// has another shape or type.
LoadReport load_state(const CheckpointSettings& settings, Communicator& group, const FoundState& state,
                      std::vector<TargetBuffer> targets);
// Collective. The same from the choice's delta number `index`, which holds "gradient.<step>" alone.
LoadReport load_delta(const CheckpointSettings& settings, Communicator& group, const FoundState& state,
                      size_t index, std::vector<TargetBuffer> targets);

}  // namespace mso
