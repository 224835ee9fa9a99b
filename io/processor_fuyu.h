// The processor of Fuyu: pictures larger than the page are scaled into it, smaller ones stay, both are filled
// up to whole patches of raw pixels; each row of patches ends with a newline token.
//
// Equal to transformers 5.24: pixels bit-identical with the backend asked for (PIL bilinear, or
// torchvision's antialiased uint8 kernel), patches and tokens exactly.
#pragma once

#include <memory>
#include <string>

#include "io/pixel_table.h"
#include "io/processor.h"

namespace mso {

struct ProcessorFiles;

struct FuyuConfig : PixelSettings {
  FuyuConfig() { image_mean = image_std = {0.5, 0.5, 0.5}; }

  bool do_resize = true, do_pad = true;
  int height = 1080, width = 1920;  // of the page
  Resample resample = Resample::kBilinear;
  int patch_height = 30, patch_width = 30;
  int padding_value = 1;  // a byte: padding comes before rescaling
  std::string image_token = "|SPEAKER|", newline_token = "|NEWLINE|", begin_token = "<s>";

  bool operator==(const FuyuConfig&) const = default;
};

class FuyuProcessor : public MediaProcessor {
 public:
  FuyuProcessor(const FuyuConfig& config, ProcessorOptions options);

  std::string family() const override { return "fuyu"; }
  // "image_patches" float32 [patches, patch_height · patch_width · 3], each [y][x][channel];
  // "image_patch_indices" int64 [tokens]: the patch at each position, −1 at newlines and at the beginning of
  // text. Tokens end with "<s>". A prompt with a picture is these tokens, the text, "<0x04>".
  ProcessedMedia image(const Image& image, PictureSize full) const override;
  int64_t image_tokens(int width, int height) const override;
  bool takes(Modality m) const override { return m == Modality::kImage; }
  uint64_t image_bytes(int width, int height) const override;
  DecodeOptions decode_options(int width, int height, bool exact) const override;
  std::map<std::string, std::string> files() const override;

 private:
  PictureSize fitted(PictureSize picture) const;
  PictureSize patches_of(PictureSize fitted) const;  // columns and rows

  FuyuConfig config_;
  PixelTable table_;
};

// Error (kBadUsage) with file and key for impossible values.
FuyuConfig read_fuyu_config(const ProcessorFiles& files);
std::unique_ptr<MediaProcessor> load_fuyu_processor(const ProcessorFiles& files,
                                                    const ProcessorOptions& options);

}  // namespace mso
