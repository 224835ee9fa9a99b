// Which state to resume from, decided from the list of all files any rank found. Pure, the same on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/snapshot.h"

namespace mso {

enum class ShardSource {
  kOwn,
  kPartner,
  kShared
};  // where a file lies: RAM disk (own or partner's copy), shared storage
const char* name_of(ShardSource source);   // "local", "partner", "shared": the words of metrics.jsonl
const char* name_of(SnapshotLevel level);  // "L0"…

// One snapshot file as found; shards of one state share level, step, attempt and writers.
struct ShardFile {
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  int64_t attempt = 0;  // start of the run that wrote it
  int writers = 0;      // ranks that wrote this state
  int writer = 0;       // which of them wrote this file
  bool exact = true;    // holds the optimizer state, so that resuming from it is exact
  int delta = 0;        // L0: steps since the full state it needs; 0: a full state
  int holder = -1;      // rank that can read it; -1: all (shared storage)
  ShardSource source = ShardSource::kShared;
  std::string path;
  uint64_t size = 0;  // bytes
  double time = 0;    // Unix seconds of writing
  bool valid = true;  // false: `problem` says why
  std::string problem;
};

struct StateChoice {
  SnapshotLevel level = SnapshotLevel::kL0;
  uint64_t step = 0;
  int64_t attempt = 0;
  bool exact = true;
  std::vector<ShardFile> shards;  // of the full state, one per writer, in their order
  // To be rolled forward over, in the order of steps up to `step`; each one file per writer, in their order.
  std::vector<std::vector<ShardFile>> deltas;
  uint64_t base_step() const { return step - deltas.size(); }
  // All files: the full state's, then the deltas'.
  std::vector<ShardFile> files() const;
};

// The best whole state: one that resumes exactly before one that does not, then the newest step, then the
// newest attempt, then the cheapest level, then the fewest deltas. A state is whole when each of its writers' shards
// is valid somewhere, and for a delta the same is true of the full state it needs and of every step between; own files
// go before partner copies, low ranks before high ones. nullopt: no whole state.
std::optional<StateChoice> choose_state(const std::vector<ShardFile>& files);
// All whole states, best first.
std::vector<StateChoice> whole_states(const std::vector<ShardFile>& files);

}  // namespace mso
