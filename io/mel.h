// Log-mel features of sound, equal to transformers' WhisperFeatureExtractor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/fft_lanes.h"

namespace mso {

// Names and defaults of WhisperFeatureExtractor.
struct MelConfig {
  int feature_size = 80;  // mel bins; 128 for Whisper large-v3 and Qwen2-Audio
  int sampling_rate = 16000;
  int n_fft = 400;        // window, even, of factors 2, 3 and 5
  int hop_length = 160;   // samples from one frame to the next
  int chunk_length = 30;  // seconds that sounds are padded or cut to
  float padding_value = 0;

  int64_t samples() const { return int64_t{chunk_length} * sampling_rate; }
  int64_t frames() const { return samples() / hop_length; }
  bool operator==(const MelConfig&) const = default;
};

// Immutable after construction; compute() may be called from several threads at once.
class LogMel {
 public:
  // Error (kBadUsage) for a configuration that cannot be computed.
  explicit LogMel(const MelConfig& config);

  const MelConfig& config() const { return config_; }

  // `samples` at config().sampling_rate, cut or padded to chunk_length. `out`: float32 [feature_size,
  // frames()]. Formula (feature_extraction_whisper.py, audio_utils.py): windows of n_fft samples around every
  // hop_length-th one, the signal mirrored at both ends, periodic Hann window, power spectrum; Slaney's mel
  // filters of 0 to 8000 Hz with area normalisation; log10 of at least 1e-10; at least the largest − 8; (x +
  // 4) / 4. Within 1e-4 of transformers.
  void compute(std::span<const float> samples, float* out) const;

 private:
  struct Filter {
    int first = 0;               // bin
    std::vector<float> weights;  // of bins first, first + 1, …
  };
  void compute_frames(const float* signal, int64_t first, int count, float* out) const;

  MelConfig config_;
  LaneFft fft_;                  // of n_fft / 2 complex numbers
  std::vector<float> window_;    // [n_fft]
  std::vector<float> turn_;      // [n_fft / 2 + 1][2]: e^(−2πi k / n_fft)
  std::vector<Filter> filters_;  // [feature_size]
};

}  // namespace mso
