// What the data pipeline hands to the model: samples packed one after the other, without padding.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"

namespace mso {

constexpr int64_t kIgnoreLabel = -100;

// T packed positions of S samples. Attention never crosses a sample boundary.
struct MicroBatch {
  std::vector<int64_t> tokens;         // [T] token ids; image positions hold the image token
  std::vector<int64_t> labels;         // [T] the token that position t should predict (already shifted), or kIgnoreLabel
  std::vector<int64_t> positions;      // [T] position inside the sample
  std::vector<int64_t> sample_starts;  // [S+1] 0 … T
  std::vector<uint64_t> sample_ids;    // [S] index of each sample in the data set
  // Media of the whole micro-batch under the names the family's processor uses, in the order of their positions; for LLaVA
  // "pixel_values" float32 [images, 3, height, width], "pixel_values_videos" float32 [frames of all clips, 3, height,
  // width], "input_features" float32 [sounds, mel bins, mel frames]. What no sample has is left out.
  std::map<std::string, HostTensor> media;
  // [P] packed positions that receive media features, in feature order: "image", "video" and "audio", each the rows that
  // come of its tensor. An image takes positions_per_image() of LlavaConfig, a frame positions_per_frame(), a sound
  // positions_per_clip(). No position stands twice.
  std::map<std::string, std::vector<int64_t>> media_positions;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t samples() const { return static_cast<int64_t>(sample_ids.size()); }
  int64_t label_count() const {
    int64_t n = 0;
    for (int64_t label : labels) n += label != kIgnoreLabel;
    return n;
  }
};

}  // namespace mso
