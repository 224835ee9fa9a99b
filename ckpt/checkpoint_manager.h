// The elastic checkpoint manager: takes snapshots of three levels in the background while training goes on.
// L0 goes to the RAM disk straight from the live buffers (with a copy on a partner node), as a full state or, at
// the steps right after one, as a delta (ckpt/delta.h); L1 and L2 go to shared storage from a private copy. Storage trouble degrades a level and never reaches the trainer.
//
// In the trainer, once a step:
//   manager.fence_gradient(step - 4, deadline);  // nobody reads the buffer this step's gradient goes to
//   encode_flags(manager.flags())  ──all-reduce(sum)──▶  auto agreed = manager.on_agreed(decode_flags(sums));
//   stall_s = manager.fence(deadline);      // nobody reads the live state any more
//   …optimizer pass…
//   if (agreed.levels) manager.begin(agreed.levels, view);   // the state after this step
//   for (const SnapshotEvent& e : manager.drain_events()) …metrics…
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/progress.h"
#include "ckpt/settings.h"
#include "ckpt/snapshot.h"
#include "comm/communicator.h"

namespace mso {

// For metrics and log: a snapshot that ended well or badly (on all ranks), or a level that changed its
// health.
struct SnapshotEvent {
  enum class Kind {
    kSnapshot,   // ended: see `ok`
    kDegraded,   // the level cannot be written now (incident "level_degraded"); retried with back-off
    kRecovered,  // … and works again (incident "level_recovered")
  };
  Kind kind = Kind::kSnapshot;
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  double write_s = 0;  // from begin() to this rank's part written (L0: and the partner's copy)
  uint64_t bytes = 0;  // of this rank's file
  bool ok = false;
  bool degraded = false;  // the level's health after it, or (L0, ok) the partner's copy is missing
  std::string error;      // of this rank; "failed on 1 other rank" where only others failed
};

// What all ranks agreed in this step.
struct SnapshotDecision {
  LevelBits levels = 0;       // call begin() with these after the optimizer pass, on every rank
  bool attempt_lost = false;  // a newer start of the run exists: end this one
};

// The state the run resumed from (its files are not overwritten before a newer one is whole).
struct ResumedFrom {
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  int64_t attempt = 0;
  int delta = 0;  // steps rolled forward from L0's full state
};

// All methods are for one thread (the trainer's) and none throws for storage trouble.
class CheckpointManager {
 public:
  // Collective (gathers the nodes' names). `group`: all ranks, used by the manager alone (split it off the
  // world). Removes leftovers of dead attempts. Storage that cannot be used yet degrades its level.
  CheckpointManager(CheckpointSettings settings, std::unique_ptr<Communicator> group,
                    std::optional<ResumedFrom> resumed = std::nullopt);
  // Gives up what is in flight (after finish() nothing is) and ends the background threads.
  ~CheckpointManager();
  CheckpointManager(const CheckpointManager&) = delete;

  // This rank's flags for the step's all-reduce: which levels are due by wall clock, what has finished or
  // failed.
  ProgressFlags flags();
  // The sums over all ranks of the flags just given. Commits or drops what is over, decides what starts now.
  SnapshotDecision on_agreed(const SummedFlags& sums);

  // Waits until no snapshot reads the live buffers of the state; call before they change. (A delta reads only
  // its step's gradient: see fence_gradient.) Returns the seconds waited. At
  // `deadline` the snapshot that still reads is given up (its level counts a failure), so this never waits
  // longer.
  double fence(Deadline deadline);
  // The same for the gradients of `step` and steps before it: call before their buffer is written to.
  double fence_gradient(uint64_t step, Deadline deadline);

  // Starts snapshots of `levels` of the state in `view` in the background and returns at once. The view's
  // buffers must stay as they are until fence() has returned, its gradient until fence_gradient() of its step
  // has; the view itself is copied. With the buffer "gradient.<step>" and the record "update" in it, L0 is a
  // delta wherever next_delta() allows one. Same step and levels
  // on all ranks.
  void begin(LevelBits levels, StateView view);

  // Collective. Waits for what is in flight, commits it. False (with log lines) where `deadline` came first
  // or a peer is lost.
  bool finish(Deadline deadline);
  // Collective: finish(), then an L2 of `view`, written and committed before it returns. The event says how
  // it went.
  SnapshotEvent write_final(StateView view, Deadline deadline);

  // Newest step with a whole snapshot at any level (all ranks agreed), for the progress line.
  std::optional<uint64_t> last_whole_step() const;
  std::vector<SnapshotEvent> drain_events();

 private:
  class Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace mso
