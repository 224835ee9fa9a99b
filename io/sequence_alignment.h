// Brings sequences of features to one length, by a rule for each modality: interpolated, padded, pooled or cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/host_tensor.h"

namespace mso {

struct AlignmentRule {
  enum class Method {
    kPad,          // as it is, then `value`
    kInterpolate,  // stretched or shrunk along time (bilinear, corners not aligned), then `value`
    kAveragePool,  // means of neighbours: as many to one as are needed to fit, then `value`
  };
  enum class Longer { kFit, kTruncate };  // what is longer than `length`: shrunk by the method (kPad cannot), or cut at its end
  enum class Side { kRight, kLeft };      // where padding goes

  int64_t length = 0;  // of the result, ≥ 1
  Method method = Method::kPad;
  float value = 0;           // of padding
  double max_stretch = 2;    // kInterpolate: a sequence becomes at most that many times as long
  Longer longer = Longer::kTruncate;
  Side side = Side::kRight;

  bool operator==(const AlignmentRule&) const = default;
};

// "video": bilinear to 64, at most doubled (32 → 64), then zeros; "audio" (speech): padded with zeros at its right to 64,
// longer ones cut; "signal" (EEG and its like): average pooling to 64 (256 → 64). Error (kBadUsage) for another name.
AlignmentRule default_alignment(std::string_view modality);

// "pad", "interpolate", "average_pool". Error (kBadUsage) naming `key`.
AlignmentRule::Method alignment_method(std::string_view name, const std::string& key);
// Error (kBadUsage) naming `key` for a length below 1 and the like.
void check_alignment(const AlignmentRule& rule, const std::string& key);

// How many of the `rule.length` rows hold features when `rows` come in; the rest is padding.
int64_t aligned_rows(int64_t rows, const AlignmentRule& rule);

// float32 [rows, …] → float32 [rule.length, …], time first. Sources: torch.nn.functional.interpolate(mode="bilinear",
// align_corners=False) over [time, features], avg_pool1d(ceil_mode=True, count_include_pad=False) over time, pad.
HostTensor align_sequence(const HostTensor& features, const AlignmentRule& rule);
// The same of rows in memory: [rows, width] → `out` [rule.length, width]. The rule is taken as checked.
void align_rows(const float* in, int64_t rows, int64_t width, const AlignmentRule& rule, float* out);

}  // namespace mso
