// The processors of CLIP, SigLIP, ViT and LLaVA 1.5: one picture of a fixed size each (io/image_processor.h),
// and for LLaVA the image tokens in the text.
//
// Equal to transformers 5.24 (and 4.57): pixels bit-identical with the backend asked for (PIL bicubic, or
// torchvision's antialiased uint8 kernel), token counts exactly.
#pragma once

#include <memory>
#include <string>

#include "io/image_processor.h"
#include "io/processor.h"

namespace mso {

struct ProcessorFiles;

// The part of LlavaProcessor and its relatives that counts tokens.
struct VisionTokens {
  std::string image_token = "<image>";
  int patch_size = 0;    // pixels; 0: the family has no image tokens
  int additional = 0;    // positions of the encoder's own (CLIP's class token); num_additional_image_tokens
  std::string strategy;  // vision_feature_select_strategy: "default" drops one position; else none

  // Patches of a picture of this size plus additional, less what the strategy drops.
  int64_t count(int height, int width) const {
    return int64_t{height / patch_size} * (width / patch_size) + dropped_or_added();
  }
  int64_t dropped_or_added() const { return additional - (strategy == "default" ? 1 : 0); }

  bool operator==(const VisionTokens&) const = default;
};

// From processor_config.json, and from config.json what that one does not say (folders of before transformers
// 4.48). Error (kBadUsage) when no file has a patch size.
VisionTokens read_vision_tokens(const ProcessorFiles& files);

class ClipProcessor : public MediaProcessor {
 public:
  ClipProcessor(std::string family, const ImageProcessorConfig& config, VisionTokens tokens,
                ProcessorOptions options);

  std::string family() const override { return family_; }
  MediaPlaceholders placeholders() const override;
  // "pixel_values" float32 [1, 3, height, width]; tokens for LLaVA only.
  ProcessedMedia image(const Image& image, PictureSize full) const override;
  int64_t image_tokens(int width, int height) const override;
  bool takes(Modality m) const override { return m == Modality::kImage; }
  uint64_t image_bytes(int width, int height) const override;
  DecodeOptions decode_options(int width, int height, bool exact) const override;
  std::map<std::string, std::string> files() const override;

 private:
  std::string family_;
  ImageProcessor processor_;
  VisionTokens tokens_;
};

std::unique_ptr<MediaProcessor> load_clip_processor(const ProcessorFiles& files,
                                                    const ProcessorOptions& options);

}  // namespace mso
