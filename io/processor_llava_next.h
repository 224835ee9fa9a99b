// The processors of LLaVA-NeXT, LLaVA-NeXT-Video and LLaVA-OneVision: pictures as tiles (io/anyres.h), each
// frame of a video as one picture.
//
// Equal to transformers 5.24 (and 4.57): pictures bit-identical with the backend asked for (PIL, or
// torchvision's antialiased uint8 kernel), frames of videos with torchvision's, which is the only one there;
// grids, image_sizes and token counts exactly. Several pictures in one prompt of LLaVA-OneVision, which
// transformers does not tile, are tiled here like single ones.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/anyres.h"
#include "io/processor_clip.h"

namespace mso {

struct LlavaNextConfig {
  std::string family = "llava_next";  // or llava_next_video, llava_onevision
  AnyresConfig image;
  std::optional<ImageProcessorConfig> video;  // one picture per frame
  VisionTokens tokens;
  std::string video_token = "<video>";
  // LLaVA-OneVision only.
  int num_image_tokens = 0;  // of one tile
  std::string vision_aspect_ratio =
      "anyres_max_9";  // beyond 9 tiles' worth the features are interpolated down

  bool operator==(const LlavaNextConfig&) const = default;
};

class LlavaNextProcessor : public MediaProcessor {
 public:
  LlavaNextProcessor(const LlavaNextConfig& config, ProcessorOptions options);

  std::string family() const override { return config_.family; }
  MediaPlaceholders placeholders() const override;
  // "pixel_values" float32 [tiles, 3, height, width], the tile of the whole first; "image_sizes" int64 [1,
  // 2], height and width. (transformers fills up to the largest number of tiles of the batch with zeros; here
  // they are joined.)
  ProcessedMedia image(const Image& image, PictureSize full) const override;
  // "pixel_values_videos" float32 [frames, 3, height, width].
  ProcessedMedia video(const VideoClip& clip) const override;
  int64_t image_tokens(int width, int height) const override;
  bool takes(Modality m) const override { return m == Modality::kImage || (m == Modality::kVideo && frame_processor_); }
  uint64_t image_bytes(int width, int height) const override;
  uint64_t video_bytes(int64_t frames, int width, int height) const override;
  int64_t video_tokens(int64_t frames, int width, int height) const override;
  DecodeOptions decode_options(int width, int height, bool exact) const override;
  std::map<std::string, std::string> files() const override;

 private:
  LlavaNextConfig config_;
  AnyresTiles tiles_;
  std::optional<ImageProcessor> frame_processor_;
  int most_tiles_ = 0;  // the number in vision_aspect_ratio
};

// Error (kBadUsage) with file and key for missing or impossible values.
LlavaNextConfig read_llava_next_config(const ProcessorFiles& files);
std::unique_ptr<MediaProcessor> load_llava_next_processor(const ProcessorFiles& files,
                                                          const ProcessorOptions& options);

}  // namespace mso
