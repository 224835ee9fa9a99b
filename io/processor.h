// What a model family's processor makes of a picture, a video or a sound: tensors for the model and the
// tokens that stand for them in the text. One file per family beside this one (io/processor_qwen2_vl.cc, …).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "io/buffer_pool.h"
#include "io/image.h"
#include "io/media_clip.h"
#include "io/modality.h"
#include "io/resize.h"
#include "io/video_sampling.h"

namespace mso {

// `count` times the token written `token` ("<|image_pad|>").
struct TokenRun {
  std::string token;
  int64_t count = 0;
  bool feature = false;  // each of these positions receives one row of the encoder's output
  // Not one token but ordinary text ("Frame1: "), to be tokenised together with the text beside it.
  bool text = false;

  bool operator==(const TokenRun&) const = default;
};

// The runs written out. Put in the place of the placeholder before tokenising, it gives the ids that
// transformers' processors give.
std::string text_of(const std::vector<TokenRun>& runs);

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

// What stands for a medium in the prompt; empty where the family has no such medium or, as Fuyu, puts it
// before the text.
struct MediaPlaceholders {
  std::string image, video, audio;
};

// Pixels.
struct PictureSize {
  int width = 0, height = 0;

  bool operator==(const PictureSize&) const = default;
};

struct ProcessorOptions {
  // Whose pixels pictures get. Videos, which transformers gives to torchvision alone, always get its.
  ImageBackend image_backend = ImageBackend::kPil;
  // Where tensors take their memory outside of a MediaMemory; whoever has used one gives it back there. Null: new memory.
  std::shared_ptr<BufferPool> pool;
};

// While it lives, the tensors that processors make on this thread come from `pool` (null: they are new memory), charged to
// the modality. One at a time.
class MediaMemory {
 public:
  MediaMemory(BufferPool* pool, Modality modality);
  ~MediaMemory();
  MediaMemory(const MediaMemory&) = delete;
  MediaMemory& operator=(const MediaMemory&) = delete;
};

// Immutable; every method may be called from several threads. A method of a modality the family does not know
// is an Error (kBadUsage); what transformers would refuse to process is an Error (kBadData).
class MediaProcessor {
 public:
  explicit MediaProcessor(ProcessorOptions options = {}) : options_(std::move(options)) {}
  virtual ~MediaProcessor() = default;

  virtual std::string family() const { return "this model family"; }
  virtual MediaPlaceholders placeholders() const { return {}; }

  // `full`: the picture's size before reduced-scale decoding (decode_options), by which grids and tokens go;
  // if not given, the picture's own.
  virtual ProcessedMedia image(const Image& image, PictureSize full = {}) const;
  // All frames of the clip: sampling is the decoder's.
  virtual ProcessedMedia video(const VideoClip& clip) const;
  virtual ProcessedMedia audio(const AudioClip& clip) const;

  virtual bool takes(Modality) const { return false; }
  // How many token positions a picture of this size takes, from its size alone (for cost and packing).
  virtual int64_t image_tokens(int width, int height) const;
  virtual int64_t video_tokens(int64_t frames, int width, int height) const;
  // Bytes of the tensors of a medium, for memory limits; audio: of any.
  virtual uint64_t image_bytes(int width, int height) const;
  virtual uint64_t video_bytes(int64_t frames, int width, int height) const;
  virtual uint64_t audio_bytes() const;
  // Which frames of a clip the family takes. `frames` > 0: that many instead, where the family's rule allows a number.
  virtual VideoSampling video_sampling(int64_t frames = 0) const;
  // The size a picture is resized to at most, so that a JPEG may be decoded at reduced scale.
  virtual DecodeOptions decode_options(int width, int height, bool exact) const;

  // The files that load_processor reads, by name, written so that transformers 4.57 and 5 load the same
  // processor from them.
  virtual std::map<std::string, std::string> files() const;

 protected:
  const ProcessorOptions& options() const { return options_; }
  HostTensor tensor(DType dtype, std::vector<int64_t> shape) const;  // undefined content

 private:
  ProcessorOptions options_;
};

// From a Hugging Face model folder: preprocessor_config.json, video_preprocessor_config.json,
// processor_config.json, tokenizer_config.json and config.json, in the spellings of transformers 4.57 and 5.
// Error (kBadUsage) naming file and key for what is missing or not known.
std::unique_ptr<MediaProcessor> load_processor(const std::filesystem::path& folder,
                                               const ProcessorOptions& options = {});

}  // namespace mso
