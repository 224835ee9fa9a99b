#include "ckpt/progress.h"

#include <cmath>

namespace mso {

std::array<double, kProgressFlagCount> encode_flags(const ProgressFlags& f) {
  const int64_t values[kProgressFlagCount] = {
      f.wish[0],         f.wish[1],       f.wish[2],         f.l0_finished,   f.l0_failed,
      f.shared_finished, f.shared_failed, f.commit_finished, f.commit_failed, f.attempt_lost};
  std::array<double, kProgressFlagCount> result;
  for (size_t i = 0; i < kProgressFlagCount; ++i) result[i] = static_cast<double>(values[i]);
  return result;
}

SummedFlags decode_flags(std::span<const double, kProgressFlagCount> values) {
  SummedFlags f;
  int64_t* const fields[kProgressFlagCount] = {
      &f.wish[0],         &f.wish[1],       &f.wish[2],         &f.l0_finished,   &f.l0_failed,
      &f.shared_finished, &f.shared_failed, &f.commit_finished, &f.commit_failed, &f.attempt_lost};
  for (size_t i = 0; i < kProgressFlagCount; ++i) *fields[i] = std::llround(values[i]);
  return f;
}

Verdict verdict(int64_t finished, int64_t failed, int ranks) {
  if (finished + failed < ranks) return Verdict::kWait;
  return failed > 0 ? Verdict::kDrop : Verdict::kCommit;
}

}  // namespace mso
