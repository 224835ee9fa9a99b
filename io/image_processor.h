// Pixels as a vision model wants them: the CLIP and LLaVA image processors of Hugging Face transformers,
// driven by their preprocessor_config.json; bit-identical with the backend that is asked for, PIL or
// torchvision.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/image.h"
#include "io/pixel_table.h"
#include "io/resize.h"

namespace mso {

// Names and defaults of CLIPImageProcessor; sizes in pixels.
struct ImageProcessorConfig : PixelSettings {
  // image_processor_type without "Fast" or "Pil": CLIPImageProcessor, LlavaImageProcessor,
  // SiglipImageProcessor or ViTImageProcessor; the last two have no crop and other defaults.
  std::string type = "CLIPImageProcessor";
  bool do_pad = false;  // LLaVA's own: first padded to a square with image_mean as colour
  bool do_resize = true;
  int shortest_edge = 224;  // the shorter side becomes this, the longer follows; 0: use height and width
  int longest_edge = 0;     // with shortest_edge: the longer side becomes at most this; 0: no limit
  int height = 0, width = 0;
  Resample resample = Resample::kBicubic;
  bool do_center_crop = true;
  int crop_height = 224, crop_width = 224;
  bool do_convert_rgb = true;

  bool operator==(const ImageProcessorConfig&) const = default;
};

// CLIP's settings for a square image of `image_size` pixels.
ImageProcessorConfig clip_image_processor(int image_size);

// From the text of preprocessor_config.json, or of processor_config.json (whose "image_processor" is taken).
// Unknown image_processor_type, impossible values and settings that would give pictures of varying size are
// an Error (kBadUsage) with the key; `origin` is the file named in it.
ImageProcessorConfig parse_image_processor(const std::string& json, const std::string& origin);

// From a model folder: preprocessor_config.json, else processor_config.json with an image_processor. False
// when the folder has neither; *config is then left alone.
bool read_image_processor(const std::filesystem::path& folder, ImageProcessorConfig* config);

// preprocessor_config.json, as AutoProcessor and AutoImageProcessor of transformers 4.57 and 5 load it.
std::string to_json(const ImageProcessorConfig& config);

// Immutable after construction; process() may be called from several threads at once.
class ImageProcessor {
 public:
  // Error (kBadUsage) when the configuration gives pictures of varying size (no crop, and only
  // shortest_edge).
  explicit ImageProcessor(const ImageProcessorConfig& config, ImageBackend backend = ImageBackend::kPil);

  const ImageProcessorConfig& config() const { return config_; }
  int height() const { return height_; }
  int width() const { return width_; }
  size_t size() const { return size_t{3} * height_ * width_; }  // floats of one picture

  // How a picture of this size (EXIF orientation applied) is best decoded: the size it will be resized to.
  DecodeOptions decode_options(int width, int height, bool exact = false) const;

  // `out`: float32 [3, height(), width()]. Bit-identical with the backend for the same RGB pixels: the
  // padding, the resize of which only the crop is computed, zeros around pictures smaller than the crop, the
  // values of io/pixel_table.h. Error (kBadData) for a picture millions of times longer than wide.
  void process(const ImageView& image, float* out) const;

 private:
  void process_unpadded(const ImageView& image, float* out) const;

  ImageProcessorConfig config_;
  ImageBackend backend_;
  int height_ = 0, width_ = 0;
  PixelTable table_;
};

}  // namespace mso
