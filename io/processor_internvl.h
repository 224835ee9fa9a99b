// The processor of InternVL in transformers' form: pictures as a grid of tiles chosen by their shape and a
// thumbnail (GotOcr2ImageProcessor with crop_to_patches, which InternVLProcessor always turns on), each frame
// of a video as one tile.
//
// Equal to transformers 5.24 (and 4.57): pictures bit-identical with the backend asked for (PIL bicubic, or
// torchvision's antialiased uint8 kernel), frames of videos with torchvision's, which is the only one there;
// tiles and token counts exactly. (4.57's slow image processor cuts tiles with bicubic whatever `resample` says.)
#pragma once

#include <memory>
#include <string>

#include "io/pixel_table.h"
#include "io/processor.h"

namespace mso {

struct ProcessorFiles;

struct InternVlPixels : PixelSettings {
  bool do_resize = true;
  Resample resample = Resample::kBicubic;
  int height = 384, width = 384;  // of a tile or frame

  bool operator==(const InternVlPixels&) const = default;
};

struct InternVlConfig {
  InternVlPixels image, video;
  int min_patches = 1, max_patches = 12;  // tiles of a picture, without the thumbnail
  int image_seq_length = 256;             // tokens of a tile
  std::string start_token = "<img>", end_token = "</img>", image_token = "<IMG_CONTEXT>",
              video_token = "<video>";

  bool operator==(const InternVlConfig&) const = default;
};

// Columns and rows of tiles for a picture: get_optimal_tiled_canvas of transformers.
PictureSize tile_grid(PictureSize picture, PictureSize tile, int min_tiles, int max_tiles);

class InternVlProcessor : public MediaProcessor {
 public:
  InternVlProcessor(const InternVlConfig& config, ProcessorOptions options);

  std::string family() const override { return "internvl"; }
  MediaPlaceholders placeholders() const override { return {config_.image_token, config_.video_token, ""}; }
  // "pixel_values" float32 [tiles, 3, height, width], the thumbnail last where there is more than one tile.
  ProcessedMedia image(const Image& image, PictureSize full) const override;
  // "pixel_values" too, [frames, 3, height, width]: transformers joins both kinds in the order of the prompt.
  // Tokens are "Frame1: <img>…</img>", a line for each frame.
  ProcessedMedia video(const VideoClip& clip) const override;
  int64_t image_tokens(int width, int height) const override;
  bool takes(Modality m) const override { return m == Modality::kImage || m == Modality::kVideo; }
  uint64_t image_bytes(int width, int height) const override;
  uint64_t video_bytes(int64_t frames, int width, int height) const override;
  VideoSampling video_sampling(int64_t frames) const override;
  // Without those of the text "Frame1: ", which depend on the tokenizer.
  int64_t video_tokens(int64_t frames, int width, int height) const override;
  DecodeOptions decode_options(int width, int height, bool exact) const override;
  std::map<std::string, std::string> files() const override;

 private:
  PictureSize grid_of(PictureSize picture) const;

  InternVlConfig config_;
  PixelTable image_table_, video_table_;
};

// Error (kBadUsage) with file and key for impossible values.
InternVlConfig read_internvl_config(const ProcessorFiles& files);
std::unique_ptr<MediaProcessor> load_internvl_processor(const ProcessorFiles& files,
                                                        const ProcessorOptions& options);

}  // namespace mso
