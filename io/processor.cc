#include "io/processor.h"

#include "base/error.h"
#include "io/processor_clip.h"
#include "io/processor_files.h"
#include "io/processor_fuyu.h"
#include "io/processor_internvl.h"
#include "io/processor_llava_next.h"
#include "io/processor_qwen2_vl.h"
#include "io/processor_whisper.h"

namespace mso {
namespace {

[[noreturn]] void no_such_medium(const MediaProcessor& processor, const char* medium) {
  throw Error(std::string("the processor takes no ") + medium, processor.family(), "", ExitCode::kBadUsage);
}

struct Memory {
  bool given = false;
  BufferPool* pool = nullptr;
  Modality modality = Modality::kImage;
};
thread_local Memory memory;

}  // namespace

MediaMemory::MediaMemory(BufferPool* pool, Modality modality) { memory = {true, pool, modality}; }
MediaMemory::~MediaMemory() { memory = {}; }

std::string text_of(const std::vector<TokenRun>& runs) {
  std::string text;
  for (const TokenRun& run : runs)
    for (int64_t i = 0; i < run.count; ++i) text += run.token;
  return text;
}

ProcessedMedia MediaProcessor::image(const Image&, PictureSize) const {
  no_such_medium(*this, "pictures");
}
ProcessedMedia MediaProcessor::video(const VideoClip&) const {
  no_such_medium(*this, "videos");
}
ProcessedMedia MediaProcessor::audio(const AudioClip&) const {
  no_such_medium(*this, "sounds");
}
int64_t MediaProcessor::image_tokens(int, int) const {
  no_such_medium(*this, "pictures");
}
int64_t MediaProcessor::video_tokens(int64_t, int, int) const {
  no_such_medium(*this, "videos");
}
uint64_t MediaProcessor::image_bytes(int, int) const { no_such_medium(*this, "pictures"); }
uint64_t MediaProcessor::video_bytes(int64_t, int, int) const { no_such_medium(*this, "videos"); }
uint64_t MediaProcessor::audio_bytes() const { no_such_medium(*this, "sounds"); }
VideoSampling MediaProcessor::video_sampling(int64_t frames) const {
  VideoSampling sampling;
  sampling.rule = VideoSampling::Rule::kUniform;
  sampling.num_frames = frames > 0 ? frames : 8;
  return sampling;
}
DecodeOptions MediaProcessor::decode_options(int, int, bool exact) const {
  DecodeOptions options;
  options.exact = exact;
  return options;
}
std::map<std::string, std::string> MediaProcessor::files() const {
  return {};
}

HostTensor MediaProcessor::tensor(DType dtype, std::vector<int64_t> shape) const {
  if (memory.given)
    return memory.pool ? memory.pool->tensor(dtype, std::move(shape), memory.modality) : HostTensor::make(dtype, std::move(shape));
  return options_.pool ? options_.pool->tensor(dtype, std::move(shape))
                       : HostTensor::make(dtype, std::move(shape));
}

std::unique_ptr<MediaProcessor> load_processor(const std::filesystem::path& folder,
                                               const ProcessorOptions& options) {
  const ProcessorFiles files = read_processor_files(folder);
  const std::string& family = files.family;
  if (family == "clip" || family == "siglip" || family == "vit" || family == "llava")
    return load_clip_processor(files, options);
  if (family == "llava_next" || family == "llava_next_video" || family == "llava_onevision")
    return load_llava_next_processor(files, options);
  if (family == "qwen2_vl" || family == "qwen2_5_vl") return load_qwen2_vl_processor(files, options);
  if (family == "internvl") return load_internvl_processor(files, options);
  if (family == "fuyu") return load_fuyu_processor(files, options);
  if (family == "whisper" || family == "qwen2_audio") return load_whisper_processor(files, options);
  throw Error("no processor for this model family", folder.string() + " (" + family + ")", "",
              ExitCode::kBadUsage);
}

}  // namespace mso
