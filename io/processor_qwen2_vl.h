// The processors of Qwen2-VL and Qwen2.5-VL: pictures and videos of any size, resized to a multiple of the
// patches that the encoder merges, as patches in the order it merges them.
//
// Equal to transformers 5.24: pictures bit-identical with the backend asked for (PIL bicubic, or
// torchvision's antialiased uint8 kernel), videos with torchvision's, which is the only one there; grids and
// token counts exactly. (4.57 gives the same, but its slow image processor ignores a `size` in the
// configuration.)
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/pixel_table.h"
#include "io/processor.h"

namespace mso {

struct ProcessorFiles;

// Keys of Qwen2VLImageProcessor and, with other defaults, Qwen2VLVideoProcessor.
struct Qwen2VlPixels : PixelSettings {
  bool do_resize = true;
  Resample resample = Resample::kBicubic;
  int64_t min_pixels = 56 * 56;         // size.shortest_edge
  int64_t max_pixels = 28 * 28 * 1280;  // size.longest_edge
  int patch_size = 14, temporal_patch_size = 2, merge_size = 2;
  // Videos: all frames together take at most 90 % of this many tokens' pixels, each at least min_pixels ·
  // 1.05.
  bool cap_pixels_per_frame = false;
  int64_t max_video_tokens = 128000;
  // Videos: what the decoder samples by; kept for export.
  int min_frames = 4, max_frames = 768;
  std::optional<double> fps;
  bool do_sample_frames = false;

  bool operator==(const Qwen2VlPixels&) const = default;
};

struct Qwen2VlConfig {
  bool version_2_5 = false;
  Qwen2VlPixels image, video;
  std::string image_token = "<|image_pad|>", video_token = "<|video_pad|>";

  bool operator==(const Qwen2VlConfig&) const = default;
};

// smart_resize of transformers: the nearest multiples of `factor` with min_pixels to max_pixels in all. Error
// (kBadData) for a side more than 200 times the other.
PictureSize smart_resize(PictureSize size, int factor, int64_t min_pixels, int64_t max_pixels);

class Qwen2VlProcessor : public MediaProcessor {
 public:
  Qwen2VlProcessor(const Qwen2VlConfig& config, ProcessorOptions options);

  const Qwen2VlConfig& config() const { return config_; }
  std::string family() const override { return config_.version_2_5 ? "qwen2_5_vl" : "qwen2_vl"; }
  MediaPlaceholders placeholders() const override { return {config_.image_token, config_.video_token, ""}; }
  // "pixel_values" float32 [patches, 3 · temporal_patch_size · patch_size²], "image_grid_thw" int64 [1, 3].
  ProcessedMedia image(const Image& image, PictureSize full) const override;
  // "pixel_values_videos" and "video_grid_thw" alike; the last frame is repeated where the number is odd. For
  // Qwen2.5-VL also "second_per_grid_ts" float32 [1].
  ProcessedMedia video(const VideoClip& clip) const override;
  int64_t image_tokens(int width, int height) const override;
  bool takes(Modality m) const override { return m == Modality::kImage || m == Modality::kVideo; }
  uint64_t image_bytes(int width, int height) const override;
  uint64_t video_bytes(int64_t frames, int width, int height) const override;
  // By rate: the folder's fps (2 where it has none), min_frames and max_frames.
  VideoSampling video_sampling(int64_t frames) const override;
  int64_t video_tokens(int64_t frames, int width, int height) const override;
  DecodeOptions decode_options(int width, int height, bool exact) const override;
  std::map<std::string, std::string> files() const override;

 private:
  Qwen2VlConfig config_;
  PixelTable image_table_, video_table_;
};

// Error (kBadUsage) with file and key for impossible values.
Qwen2VlConfig read_qwen2_vl_config(const ProcessorFiles& files);
std::unique_ptr<MediaProcessor> load_qwen2_vl_processor(const ProcessorFiles& files,
                                                        const ProcessorOptions& options);

}  // namespace mso
