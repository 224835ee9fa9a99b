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
  std::vector<ShardFile> shards;  // one per writer, in their order
};

// The best whole state: one that resumes exactly before one that does not, then the newest step, then the
// newest attempt, then the cheapest level. A state is whole when each of its writers' shards is valid
// somewhere; own files go before partner copies, low ranks before high ones. nullopt: no whole state.
std::optional<StateChoice> choose_state(const std::vector<ShardFile>& files);

}  // namespace mso
