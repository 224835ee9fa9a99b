// Decoded video and audio as they go from the decoders (io/video.h, io/audio.h) to the processors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mso {

// Frames of one clip, all of one size: rgb[((frame * height + y) * width + x) * 3 + channel], 8-bit, upright
// (the container's rotation applied).
struct VideoClip {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;
  std::vector<double> timestamps_s;  // [frames] presentation time of each frame, from the start of the clip
  // Of the whole stream, before sampling: what Hugging Face calls VideoMetadata.
  double frames_per_second = 0;        // average
  int64_t total_frames = 0;            // that decode, not what the header says
  std::vector<int64_t> frame_indices;  // [frames] place of each frame in the stream

  int64_t frames() const { return static_cast<int64_t>(timestamps_s.size()); }
  std::span<const uint8_t> frame(int64_t i) const {
    const size_t bytes = size_t{3} * width * height;
    return std::span(rgb).subspan(i * bytes, bytes);
  }
};

// One channel of samples in [-1, 1].
struct AudioClip {
  int sample_rate = 0;  // Hz
  std::vector<float> samples;
};

}  // namespace mso
