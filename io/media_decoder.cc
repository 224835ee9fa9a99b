#include "io/media_decoder.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/audio.h"
#include "io/video.h"

namespace mso {

MediaDecoder make_video_decoder(const ImageProcessorConfig& config, int64_t frames, int64_t tokens_per_frame, int64_t token,
                                std::optional<AlignmentRule> alignment, std::shared_ptr<VideoDevice> device) {
  auto processor = std::make_shared<const ImageProcessor>(config);
  VideoOptions options;
  options.device = std::move(device);
  options.sampling.rule = VideoSampling::Rule::kUniform;
  options.sampling.num_frames = frames;
  MediaDecoder decoder;
  decoder.token = token;
  const int64_t most = alignment ? alignment->length : frames;
  decoder.most_tokens = most * tokens_per_frame;
  decoder.same_tokens = alignment.has_value();
  decoder.most_bytes = static_cast<uint64_t>(most + (alignment ? frames : 0)) * processor->size() * sizeof(float);
  decoder.decode = [processor, options, tokens_per_frame, alignment](std::span<const std::byte> file, const std::string& name,
                                                          BufferPool* pool) {
    const VideoClip clip = decode_video(file, name, options);
    const std::vector<int64_t> shape = {clip.frames(), 3, processor->height(), processor->width()};
    HostTensor frames = pool ? pool->tensor(DType::kF32, shape, Modality::kVideo) : HostTensor::make(DType::kF32, shape);
    Image image;
    image.width = clip.width;
    image.height = clip.height;
    for (int64_t frame = 0; frame < clip.frames(); ++frame) {
      const std::span<const uint8_t> rgb = clip.frame(frame);
      image.rgb.assign(rgb.begin(), rgb.end());
      processor->process(image, frames.data<float>() + static_cast<size_t>(frame) * processor->size());
    }
    if (alignment) {
      std::vector<int64_t> aligned_shape = shape;
      aligned_shape[0] = alignment->length;
      HostTensor aligned = pool ? pool->tensor(DType::kF32, aligned_shape, Modality::kVideo) : HostTensor::make(DType::kF32, aligned_shape);
      align_rows(frames.data<float>(), shape[0], static_cast<int64_t>(processor->size()), *alignment, aligned.data<float>());
      if (pool) pool->give_back(std::move(frames));
      frames = std::move(aligned);
    }
    const int64_t tokens = frames.shape[0] * tokens_per_frame;
    return one_tensor("pixel_values_videos", std::move(frames), tokens);
  };
  return decoder;
}

MediaDecoder make_audio_decoder(int64_t mel_bins, int64_t mel_frames, int64_t tokens, int64_t token,
                                std::optional<AlignmentRule> alignment) {
  MelConfig config;
  config.feature_size = static_cast<int>(mel_bins);
  const int64_t samples = mel_frames * config.hop_length;
  config.chunk_length = static_cast<int>((samples + config.sampling_rate - 1) / config.sampling_rate);
  auto mel = std::make_shared<const LogMel>(config);
  MediaDecoder decoder;
  decoder.token = token;
  decoder.most_tokens = tokens;
  decoder.same_tokens = true;
  decoder.most_bytes = static_cast<uint64_t>(mel_bins * mel_frames) * sizeof(float);
  decoder.decode = [mel, mel_bins, mel_frames, tokens, samples, alignment](std::span<const std::byte> file, const std::string& name,
                                                                BufferPool* pool) {
    const AudioClip clip = decode_audio(file, name);
    const size_t used = std::min(clip.samples.size(), static_cast<size_t>(samples));
    const int64_t computed = mel->config().frames();
    thread_local std::vector<float> features;
    features.resize(static_cast<size_t>(mel_bins * computed));
    mel->compute(std::span(clip.samples).first(used), features.data());
    const std::vector<int64_t> shape = {1, mel_bins, mel_frames};
    HostTensor out = pool ? pool->tensor(DType::kF32, shape, Modality::kAudio) : HostTensor::make(DType::kF32, shape);
    if (alignment) {  // time is the last dimension here: each bin by itself
      const int64_t hop = mel->config().hop_length, own = (static_cast<int64_t>(used) + hop - 1) / hop;
      for (int64_t bin = 0; bin < mel_bins; ++bin)
        align_rows(features.data() + bin * computed, std::min(own, computed), 1, *alignment, out.data<float>() + bin * mel_frames);
      return one_tensor("input_features", std::move(out), tokens);
    }
    for (int64_t bin = 0; bin < mel_bins; ++bin)  // whole seconds are computed: the rest is left out
      std::memcpy(out.data<float>() + bin * mel_frames, features.data() + bin * computed,
                  static_cast<size_t>(mel_frames) * sizeof(float));
    return one_tensor("input_features", std::move(out), tokens);
  };
  return decoder;
}

}  // namespace mso
