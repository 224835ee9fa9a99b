#include "io/video_sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"

namespace mso {
namespace {

void check(const VideoSampling& s, int64_t total, double rate) {
  const auto refuse = [](const std::string& what) {
    throw Error("video sampling: " + what, "settings", "", ExitCode::kBadUsage);
  };
  if (total < 1) refuse("a clip without frames");
  if (!(rate > 0) || !std::isfinite(rate)) refuse("the clip's frame rate must be above 0");
  if (s.num_frames < 0) refuse("num_frames must not be negative");
  if (s.num_frames == 0 && s.rule != VideoSampling::Rule::kAll && (!(s.fps > 0) || !std::isfinite(s.fps)))
    refuse("fps must be above 0");
  if (s.temporal_patch < 1 || s.min_frames < 0 || s.max_frames < s.temporal_patch)
    refuse("needs temporal_patch ≥ 1, min_frames ≥ 0, max_frames ≥ temporal_patch");
  if (s.min_frames > s.max_frames) refuse("min_frames is above max_frames");
}

int64_t clamped(double x) {
  return static_cast<int64_t>(std::min(x, 9e15));
}

// As many as the rule says, from 1 to total.
int64_t frame_count(const VideoSampling& s, int64_t total, double rate) {
  if (s.rule == VideoSampling::Rule::kAll) return total;
  const double wanted = static_cast<double>(total) / rate * s.fps;
  int64_t n;
  if (s.rule == VideoSampling::Rule::kUniform || s.rule == VideoSampling::Rule::kMiddle) {
    n = s.num_frames > 0 ? s.num_frames : std::max<int64_t>(1, clamped(wanted));
    return std::min(n, total);
  }
  const int64_t patch = s.temporal_patch;
  if (s.num_frames > 0) {
    n = clamped(std::nearbyint(static_cast<double>(s.num_frames) / static_cast<double>(patch))) * patch;
    if (n > total) n = total / patch * patch;
  } else {
    const bool tools = s.rule == VideoSampling::Rule::kQwenVlUtils;  // these round the minimum up
    const double low = static_cast<double>(tools ? (s.min_frames + patch - 1) / patch * patch : s.min_frames);
    const double high = static_cast<double>(std::min(s.max_frames, total) / patch * patch);
    n = clamped(std::min({std::max(wanted, low), high, static_cast<double>(total)})) / patch * patch;
  }
  return n > 0 ? n : std::min(total, patch);
}

// i · a / b without overflow for any counts of frames.
using Wide = __int128;

}  // namespace

std::vector<int64_t> sample_frames(const VideoSampling& sampling, int64_t total, double rate) {
  check(sampling, total, rate);
  const int64_t n = frame_count(sampling, total, rate);
  std::vector<int64_t> indices(n);
  if (n == total) {
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (sampling.rule == VideoSampling::Rule::kQwenVlUtils && n > 1) {
      const Wide twice = Wide{2} * i * (total - 1), step = Wide{n - 1};
      Wide rounded = (twice + step) / (2 * step);
      if ((twice + step) % (2 * step) == 0 && rounded % 2 == 1) --rounded;  // halves to even
      indices[i] = static_cast<int64_t>(rounded);
    } else if (sampling.rule == VideoSampling::Rule::kMiddle) {
      indices[i] = static_cast<int64_t>((Wide{2} * i + 1) * total / (Wide{2} * n));
    } else {
      indices[i] = static_cast<int64_t>(Wide{i} * total / n);
    }
  }
  return indices;
}

std::vector<int64_t> sample_times(const VideoSampling& sampling, const std::vector<double>& timestamps_s,
                                  double duration_s) {
  const int64_t total = static_cast<int64_t>(timestamps_s.size());
  const double start = total > 0 ? timestamps_s.front() : 0;
  const double length = duration_s - start;
  const double rate = length > 0 ? static_cast<double>(total) / length : 1;
  check(sampling, total, rate);
  const int64_t n = frame_count(sampling, total, rate);
  const bool with_last = sampling.rule == VideoSampling::Rule::kQwenVlUtils && n > 1;
  const double step = with_last ? (timestamps_s.back() - start) / static_cast<double>(n - 1)
                                : length / static_cast<double>(n);
  std::vector<int64_t> indices(n);
  for (int64_t i = 0; i < n; ++i) {
    // A hair later, so that a frame that begins at this very time is the one shown.
    const double place = static_cast<double>(i) + (sampling.rule == VideoSampling::Rule::kMiddle ? 0.5 : 0);
    const double time = start + step * place + 1e-9;
    const auto after = std::upper_bound(timestamps_s.begin(), timestamps_s.end(), time);
    indices[i] = std::max<int64_t>(0, after - timestamps_s.begin() - 1);
  }
  return indices;
}

}  // namespace mso
