// A training run without a model, for tests: a few tensors whose every element is a known function of the
// step, cut into shards like the real ones, trained by ranks that are threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/checkpoint_manager.h"
#include "ckpt/recovery.h"
#include "ckpt/run_attempt.h"

namespace mso::testing {

// A folder of its own, removed at the end. Under /dev/shm where there is one.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Tensors with awkward sizes: scalars, shorter than the number of ranks, not multiples of 16.
FlatLayout tiny_layout();
// One rank's shard in buffers of its own.
struct TinyState {
  TinyState(int rank, int ranks);
  void advance_to(uint64_t step);  // what the optimizer does
  StateView view(uint64_t step) const;
  // With what a delta needs: the step's gradient (advance_to() fills it) and its update.
  StateView view_with_gradient(uint64_t step) const;
  std::vector<TargetBuffer> targets();
  TargetBuffer gradient_target(uint64_t step);
  std::string gradient_difference(uint64_t step) const;
  // First difference from the state after `step`, "" where there is none. Padding counts.
  std::string difference(uint64_t step) const;

  Shard shard;
  std::vector<TensorSlice> slices;
  std::map<std::string, std::vector<float>> buffers;
  std::vector<float> gradients[kMaxDeltas + 1];  // by step modulo their number
};
StepUpdate tiny_update(uint64_t step);
float tiny_value(const std::string& buffer, const std::string& tensor, uint64_t element, uint64_t step);

struct TinyOptions {
  std::filesystem::path folder;  // run folder and RAM disk lie in it
  int ranks = 2;
  uint64_t until = 8;  // steps
  std::function<void(CheckpointSettings&, int rank)> adjust;
  // After each step on every rank.
  std::function<void(int rank, uint64_t step, CheckpointManager&)> each_step;
  bool finish = true;  // orderly end
  bool final_snapshot = false;
  bool gradients = true;  // deltas are possible
};
// For `each_step`: waits until this rank's L0 is written, so that the next step can have one too.
void wait_for_level0(int rank, uint64_t step, CheckpointManager& manager);

struct TinyResult {
  std::optional<StateChoice> resumed;
  ShardSource source = ShardSource::kOwn;
  std::string difference;                          // of any rank after resuming: "" is right
  std::vector<StepUpdate> updates;                 // rolled forward over
  std::string cursor;                              // record of the state it resumed from
  std::vector<std::vector<SnapshotEvent>> events;  // by rank
  std::vector<std::string> errors;                 // by rank, "" where it ended well
  std::optional<ExitCode> exit_code;
  bool attempt_lost = false;
  bool finished = true;
};
CheckpointSettings tiny_settings(const std::filesystem::path& folder);
// Resumes where there is something to resume from, then trains.
TinyResult run_tiny(const TinyOptions& options);
// All files below a folder, sorted.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace mso::testing
