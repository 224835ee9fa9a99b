#include "io/sequence_alignment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace mso {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 24;

int64_t pool_size(int64_t rows, int64_t length) { return std::max<int64_t>(1, (rows + length - 1) / length); }

// Rows of `in` [rows, width] → [out_rows, width].
void interpolate(const float* in, int64_t rows, float* out, int64_t out_rows, int64_t width) {
  const float scale = static_cast<float>(rows) / static_cast<float>(out_rows);
  for (int64_t i = 0; i < out_rows; ++i) {
    const float at = std::max(0.0f, scale * (static_cast<float>(i) + 0.5f) - 0.5f);
    const int64_t first = std::min(static_cast<int64_t>(at), rows - 1), second = std::min(first + 1, rows - 1);
    const float weight = std::clamp(at - static_cast<float>(first), 0.0f, 1.0f);
    const float *a = in + first * width, *b = in + second * width;
    for (int64_t k = 0; k < width; ++k) out[i * width + k] = (1 - weight) * a[k] + weight * b[k];
  }
}

void average(const float* in, int64_t rows, float* out, int64_t out_rows, int64_t width, int64_t size) {
  for (int64_t i = 0; i < out_rows; ++i) {
    const int64_t from = i * size, to = std::min(from + size, rows);
    for (int64_t k = 0; k < width; ++k) {
      float sum = 0;
      for (int64_t row = from; row < to; ++row) sum += in[row * width + k];
      out[i * width + k] = sum / static_cast<float>(to - from);
    }
  }
}

}  // namespace

AlignmentRule default_alignment(std::string_view modality) {
  using Rule = AlignmentRule;
  if (modality == "video") return {64, Rule::Method::kInterpolate, 0, 2, Rule::Longer::kFit, Rule::Side::kRight};
  if (modality == "audio") return {64, Rule::Method::kPad, 0, 2, Rule::Longer::kTruncate, Rule::Side::kRight};
  if (modality == "signal") return {64, Rule::Method::kAveragePool, 0, 2, Rule::Longer::kFit, Rule::Side::kRight};
  throw Error("no such modality", "'" + std::string(modality) + "'", "one of video, audio, signal", ExitCode::kBadUsage);
}

AlignmentRule::Method alignment_method(std::string_view name, const std::string& key) {
  if (name == "pad") return AlignmentRule::Method::kPad;
  if (name == "interpolate") return AlignmentRule::Method::kInterpolate;
  if (name == "average_pool") return AlignmentRule::Method::kAveragePool;
  throw Error("no such way to align", key + ": " + std::string(name), "one of pad, interpolate, average_pool", ExitCode::kBadUsage);
}

void check_alignment(const AlignmentRule& rule, const std::string& key) {
  if (rule.length < 1 || rule.length > kMaxLength)
    throw Error("length out of range", key + ": " + std::to_string(rule.length), "1 to 16777216", ExitCode::kBadUsage);
  if (!(rule.max_stretch >= 1))
    throw Error("a sequence cannot be stretched to less than itself", key + ": " + std::to_string(rule.max_stretch), "1 or more",
                ExitCode::kBadUsage);
  if (!std::isfinite(rule.value)) throw Error("padding is no number", key, "give a finite value", ExitCode::kBadUsage);
  if (rule.method == AlignmentRule::Method::kPad && rule.longer == AlignmentRule::Longer::kFit)
    throw Error("padding cannot make a sequence shorter", key, "cut longer ones, or use interpolate or average_pool",
                ExitCode::kBadUsage);
}

int64_t aligned_rows(int64_t rows, const AlignmentRule& rule) {
  if (rows <= 0) return 0;
  if (rows > rule.length && rule.longer == AlignmentRule::Longer::kTruncate) return rule.length;
  switch (rule.method) {
    case AlignmentRule::Method::kPad:
      return std::min(rows, rule.length);
    case AlignmentRule::Method::kInterpolate:
      // At least its own length where the stretch is below one row.
      return std::min(rule.length, static_cast<int64_t>(std::min(static_cast<double>(rule.length), static_cast<double>(rows) * rule.max_stretch)));
    case AlignmentRule::Method::kAveragePool: {
      const int64_t size = pool_size(rows, rule.length);
      return (rows + size - 1) / size;
    }
  }
  return 0;
}

void align_rows(const float* in, int64_t rows, int64_t width, const AlignmentRule& rule, float* out) {
  const int64_t filled = aligned_rows(rows, rule), padding = rule.length - filled;
  std::fill(out, out + rule.length * width, rule.value);
  if (rule.side == AlignmentRule::Side::kLeft) out += padding * width;
  if (filled == 0 || width == 0) return;
  if (rows > rule.length && rule.longer == AlignmentRule::Longer::kTruncate) rows = rule.length;
  if (rule.method == AlignmentRule::Method::kInterpolate && filled != rows)
    interpolate(in, rows, out, filled, width);
  else if (rule.method == AlignmentRule::Method::kAveragePool && filled != rows)
    average(in, rows, out, filled, width, pool_size(rows, rule.length));
  else
    std::memcpy(out, in, static_cast<size_t>(filled * width) * sizeof(float));
}

HostTensor align_sequence(const HostTensor& features, const AlignmentRule& rule) {
  check_alignment(rule, "alignment");
  if (features.dtype != DType::kF32 || features.shape.empty())
    throw Error("features are no float32 [time, …]", "alignment of a sequence", "", ExitCode::kBadUsage);
  int64_t width = 1;
  for (size_t i = 1; i < features.shape.size(); ++i) width *= features.shape[i];
  std::vector<int64_t> shape = features.shape;
  shape[0] = rule.length;
  HostTensor result = HostTensor::make(DType::kF32, shape);
  align_rows(features.data<float>(), features.shape[0], width, rule, result.data<float>());
  return result;
}

}  // namespace mso
