// What a rank tells the others about its snapshots on the trainer's small all-reduce, and what follows from
// the sums. Pure; every rank computes the same from the same sums.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace mso {

// Sets of levels: bit (1 << level).
using LevelBits = unsigned;
constexpr LevelBits kLevel0Bit = 1, kLevel1Bit = 2, kLevel2Bit = 4;

// One rank's say in one step: all 0 or 1. The sums over ranks have the same fields.
struct ProgressFlags {
  int64_t wish[3] = {0, 0, 0};  // a snapshot of this level is due by this rank's clock
  int64_t l0_finished = 0;      // its part of the L0 snapshot in flight is written
  int64_t l0_failed = 0;        // … could not be written
  int64_t shared_finished = 0;  // its part of the L1 or L2 snapshot in flight is written and synced
  int64_t shared_failed = 0;
  int64_t commit_finished = 0;  // rank 0 only: the L1 or L2 snapshot in flight is visible and durable
  int64_t commit_failed = 0;    // … could not be made so
  int64_t attempt_lost = 0;     // a newer start of the run exists: this one must end

  bool operator==(const ProgressFlags&) const = default;
};
using SummedFlags = ProgressFlags;

constexpr size_t kProgressFlagCount = 10;
// As doubles (small integers: exact), for the trainer's all-reduce with kSum.
std::array<double, kProgressFlagCount> encode_flags(const ProgressFlags& flags);
SummedFlags decode_flags(std::span<const double, kProgressFlagCount> values);

// What to do about a snapshot that is in flight on all ranks: wait until each has finished or failed, then
// commit it where none failed.
enum class Verdict { kWait, kCommit, kDrop };
Verdict verdict(int64_t finished, int64_t failed, int ranks);

}  // namespace mso
