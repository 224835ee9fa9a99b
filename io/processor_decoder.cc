#include "io/processor_decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/audio.h"
#include "io/image.h"
#include "io/video.h"

namespace mso {
namespace {

// What is reckoned with where the index does not know a file's size.
constexpr PictureSize kUnknownPicture = {1024, 1024}, kUnknownVideo = {1280, 720};
constexpr double kUnknownSeconds = 10, kUnknownRate = 30;
constexpr int64_t kSoundTokens = 750;  // of 30 s, at 25 a second

// The token of the first run that receives features, of a small medium that `make` has processed; where the processor
// refuses that, the placeholder's. -1: none receives any.
template <typename Make>
int64_t feature_token(Make make, const std::string& placeholder, const Tokenizer& tokenizer) {
  std::vector<TokenRun> runs;
  try {
    runs = make();
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kBadData) throw;
    if (!placeholder.empty()) runs = {{placeholder, 1, true}};
  }
  for (const TokenRun& run : runs)
    if (run.feature) {
      if (const auto id = tokenizer.token_id(run.token)) return *id;
      throw Error("the tokenizer does not know a media token", "'" + run.token + "'",
                  "give the tokenizer of the model, or add the token to it", ExitCode::kBadUsage);
    }
  return -1;
}

// A picture or clip that the processor refuses is told when it is decoded.
template <typename Make>
MediumBounds bounds_or_one(Make make) {
  try {
    return make();
  } catch (const Error&) {
    return {1, 0};
  }
}

Image blank(int side) {
  Image image;
  image.width = image.height = side;
  image.rgb.assign(size_t{3} * side * side, 0);
  return image;
}

MediaDecoder picture_decoder(const std::shared_ptr<const MediaProcessor>& processor, const Tokenizer& tokenizer, bool exact) {
  MediaDecoder decoder;
  decoder.token = feature_token([&] { return processor->image(blank(56)).tokens; }, processor->placeholders().image, tokenizer);
  decoder.bounds = [processor](const MediaFacts* facts) {
    const bool known = facts && facts->width > 0 && facts->height > 0;
    const int width = known ? static_cast<int>(facts->width) : kUnknownPicture.width;
    const int height = known ? static_cast<int>(facts->height) : kUnknownPicture.height;
    return bounds_or_one([&] { return MediumBounds{processor->image_tokens(width, height), processor->image_bytes(width, height)}; });
  };
  decoder.decode = [processor, exact](std::span<const std::byte> file, const std::string&, BufferPool* pool) {
    thread_local Image image;  // its memory is used again for the next picture
    const ImageInfo info = probe_image(file, "picture");
    decode_image(file, "picture", processor->decode_options(info.width, info.height, exact), &image);
    const MediaMemory memory(pool, Modality::kImage);
    return processor->image(image, {info.width, info.height});
  };
  return decoder;
}

MediaDecoder video_decoder(const std::shared_ptr<const MediaProcessor>& processor, const Tokenizer& tokenizer, int64_t frames,
                           std::shared_ptr<VideoDevice> device) {
  MediaDecoder decoder;
  VideoClip still;
  still.width = still.height = 56;
  still.rgb.assign(size_t{3} * 56 * 56 * 4, 0);
  still.timestamps_s = {0, 1, 2, 3};
  still.frame_indices = {0, 1, 2, 3};
  decoder.token = feature_token([&] { return processor->video(still).tokens; }, processor->placeholders().video, tokenizer);
  VideoOptions options;
  options.device = std::move(device);
  options.sampling = processor->video_sampling(frames);
  decoder.bounds = [processor, sampling = options.sampling](const MediaFacts* facts) {
    const bool known = facts && facts->width > 0 && facts->height > 0;
    int width = known ? static_cast<int>(facts->width) : kUnknownVideo.width;
    int height = known ? static_cast<int>(facts->height) : kUnknownVideo.height;
    if (known && facts->swaps_sides()) std::swap(width, height);
    const double seconds = facts && facts->duration_us > 0 ? static_cast<double>(facts->duration_us) / 1e6 : kUnknownSeconds;
    const int64_t total = facts && facts->frames > 0 ? facts->frames : static_cast<int64_t>(std::ceil(seconds * kUnknownRate));
    return bounds_or_one([&] {
      const auto chosen = static_cast<int64_t>(sample_frames(sampling, total, static_cast<double>(total) / seconds).size());
      return MediumBounds{processor->video_tokens(chosen, width, height), processor->video_bytes(chosen, width, height)};
    });
  };
  decoder.decode = [processor, options](std::span<const std::byte> file, const std::string& name, BufferPool* pool) {
    const VideoClip clip = decode_video(file, name, options);
    const MediaMemory memory(pool, Modality::kVideo);
    return processor->video(clip);
  };
  return decoder;
}

MediaDecoder sound_decoder(const std::shared_ptr<const MediaProcessor>& processor, const Tokenizer& tokenizer) {
  MediaDecoder decoder;
  const std::string placeholder = processor->placeholders().audio;
  const auto one = [&] { return placeholder.empty() ? std::vector<TokenRun>() : std::vector<TokenRun>{{placeholder, 1, true}}; };
  decoder.token = feature_token(one, placeholder, tokenizer);
  decoder.most_tokens = placeholder.empty() ? 0 : kSoundTokens;
  decoder.most_bytes = processor->audio_bytes();
  decoder.decode = [processor](std::span<const std::byte> file, const std::string& name, BufferPool* pool) {
    const AudioClip clip = decode_audio(file, name);
    const MediaMemory memory(pool, Modality::kAudio);
    return processor->audio(clip);
  };
  return decoder;
}

}  // namespace

PerModality<MediaDecoder> processor_decoders(std::shared_ptr<const MediaProcessor> processor, const Tokenizer& tokenizer,
                                             const ProcessorDecoderOptions& options) {
  PerModality<MediaDecoder> decoders;
  if (processor->takes(Modality::kImage)) decoders[Modality::kImage] = picture_decoder(processor, tokenizer, options.exact_jpeg);
  if (processor->takes(Modality::kVideo)) decoders[Modality::kVideo] = video_decoder(processor, tokenizer, options.frames, options.device);
  if (processor->takes(Modality::kAudio)) decoders[Modality::kAudio] = sound_decoder(processor, tokenizer);
  return decoders;
}

}  // namespace mso
