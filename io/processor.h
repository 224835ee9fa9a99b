// What a model family's processor makes of a picture, a video or a sound: tensors for the model and the
// tokens that stand for them in the text. One file per family beside this one (io/processor_qwen2_vl.cc, …).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "io/image.h"
#include "io/media_clip.h"

namespace mso {

// `count` times the token written `token` ("<|image_pad|>").
struct TokenRun {
  std::string token;
  int64_t count = 0;
  bool feature = false;  // each of these positions receives one row of the encoder's output

  bool operator==(const TokenRun&) const = default;
};

struct ProcessedMedia {
  // Under the names transformers' processor returns them ("pixel_values", "image_grid_thw",
  // "input_features"), without a batch dimension: processors of several samples are joined along the first
  // dimension of each.
  std::map<std::string, HostTensor> tensors;
  // What the family's placeholder in the text is replaced by, in order.
  std::vector<TokenRun> tokens;

  int64_t feature_count() const {
    int64_t n = 0;
    for (const TokenRun& run : tokens)
      if (run.feature) n += run.count;
    return n;
  }
};

// Immutable; every method may be called from several threads. A method of a modality the family does not know
// is an Error (kBadUsage).
class MediaProcessor {
 public:
  virtual ~MediaProcessor() = default;

  virtual ProcessedMedia image(const Image& image) const;
  virtual ProcessedMedia video(const VideoClip& clip) const;
  virtual ProcessedMedia audio(const AudioClip& clip) const;

  // How many token positions a picture of this size takes, from its size alone (for cost and packing).
  virtual int64_t image_tokens(int width, int height) const;
  // The size a picture is resized to at most, so that a JPEG may be decoded at reduced scale.
  virtual DecodeOptions decode_options(int width, int height, bool exact) const;
};

// From a Hugging Face model folder: preprocessor_config.json, video_preprocessor_config.json,
// processor_config.json and config.json. Error (kBadUsage) naming file and key for what is missing or not
// known.
std::unique_ptr<MediaProcessor> load_processor(const std::filesystem::path& folder);

}  // namespace mso
