#include "io/processor_whisper.h"

#include <algorithm>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {

WhisperProcessor::WhisperProcessor(const WhisperConfig& config, ProcessorOptions options)
    : MediaProcessor(std::move(options)), config_(config), mel_(config.mel) {}

MediaPlaceholders WhisperProcessor::placeholders() const {
  MediaPlaceholders placeholders;
  placeholders.audio = config_.audio_token;
  return placeholders;
}

int64_t WhisperProcessor::sound_frames(int64_t samples) const {
  const int64_t hop = config_.mel.hop_length;
  const int64_t given = std::clamp<int64_t>(samples, 0, config_.mel.samples());
  return std::min((given + hop - 1) / hop, config_.mel.frames());
}

int64_t WhisperProcessor::audio_tokens(int64_t samples) const {
  if (config_.audio_token.empty()) return 0;
  const int64_t frames = sound_frames(samples);
  // Python's // rounds down: no frame gives no token.
  const int64_t halved = frames > 0 ? (frames - 1) / 2 + 1 : 0;
  return halved >= 2 ? (halved - 2) / 2 + 1 : 0;
}

uint64_t WhisperProcessor::audio_bytes() const {
  const auto frames = static_cast<uint64_t>(config_.mel.frames());
  return (frames * static_cast<uint64_t>(config_.mel.feature_size) + frames) * sizeof(float);
}

ProcessedMedia WhisperProcessor::audio(const AudioClip& clip) const {
  const MelConfig& mel = config_.mel;
  if (clip.sample_rate != mel.sampling_rate)
    throw Error("sound of " + std::to_string(clip.sample_rate) + " Hz", config_.family,
                "the extractor wants " + std::to_string(mel.sampling_rate) + " Hz", ExitCode::kBadData);
  ProcessedMedia media;
  HostTensor features = tensor(DType::kF32, {1, mel.feature_size, mel.frames()});
  mel_.compute(clip.samples, features.data<float>());
  media.tensors.emplace("input_features", std::move(features));
  const auto samples = static_cast<int64_t>(clip.samples.size());
  const bool qwen = !config_.audio_token.empty();
  if (qwen || config_.return_attention_mask) {
    HostTensor mask = tensor(DType::kI32, {1, mel.frames()});
    const int64_t inside = sound_frames(samples);
    for (int64_t i = 0; i < mel.frames(); ++i) mask.data<int32_t>()[i] = i < inside;
    media.tensors.emplace(qwen ? "feature_attention_mask" : "attention_mask", std::move(mask));
  }
  if (qwen) media.tokens.push_back({config_.audio_token, audio_tokens(samples), true});
  return media;
}

std::map<std::string, std::string> WhisperProcessor::files() const {
  const MelConfig& mel = config_.mel;
  const bool qwen = config_.family == "qwen2_audio";
  nlohmann::ordered_json j;
  j["chunk_length"] = mel.chunk_length;
  j["dither"] = 0.0;
  j["feature_extractor_type"] = "WhisperFeatureExtractor";
  j["feature_size"] = mel.feature_size;
  j["hop_length"] = mel.hop_length;
  j["n_fft"] = mel.n_fft;
  j["n_samples"] = mel.samples();
  j["nb_max_frames"] = mel.frames();
  j["padding_side"] = "right";
  j["padding_value"] = mel.padding_value;
  j["processor_class"] = qwen ? "Qwen2AudioProcessor" : "WhisperProcessor";
  j["return_attention_mask"] = config_.return_attention_mask;
  j["sampling_rate"] = mel.sampling_rate;
  std::map<std::string, std::string> files = {{"preprocessor_config.json", to_file(j)}};
  if (qwen)
    files["processor_config.json"] =
        to_file({{"audio_token", config_.audio_token}, {"processor_class", "Qwen2AudioProcessor"}});
  return files;
}

WhisperConfig read_whisper_config(const ProcessorFiles& files) {
  WhisperConfig config;
  config.family = files.family;
  // transformers 5 nests it in processor_config.json; else preprocessor_config.json, read as the image
  // processor's.
  ProcessorFiles::Part part = files.image;
  for (const char* key : {"feature_extractor", "audio_processor"})
    if (const auto it = files.processor.json.find(key); it != files.processor.json.end() && it->is_object())
      part = {*it, files.processor.origin};
  if (!part.found())
    throw Error("the folder has no feature extractor", files.folder.string(),
                "preprocessor_config.json or processor_config.json describes it", ExitCode::kBadUsage);
  const ConfigKeys keys = part.keys("feature extractor");
  std::string type = "WhisperFeatureExtractor", side = "right";
  keys.read("feature_extractor_type", &type);
  if (type != "WhisperFeatureExtractor") keys.wrong("feature_extractor_type", "WhisperFeatureExtractor");
  keys.read("padding_side", &side);
  if (side != "right") keys.wrong("padding_side", "\"right\"");
  MelConfig& mel = config.mel;
  keys.read("feature_size", 1, 4096, &mel.feature_size);
  keys.read("sampling_rate", 2, 1000000, &mel.sampling_rate);
  keys.read("hop_length", 1, 65536, &mel.hop_length);
  keys.read("chunk_length", 1, 86400, &mel.chunk_length);
  keys.read("n_fft", 4, 65536, &mel.n_fft);
  double padding = mel.padding_value, dither = 0;
  keys.read("padding_value", &padding);
  mel.padding_value = static_cast<float>(padding);
  keys.read("dither", &dither);
  if (dither != 0) keys.wrong("dither", "0: features are the same for the same sound");
  keys.read("return_attention_mask", &config.return_attention_mask);
  if (config.family == "qwen2_audio") config.audio_token = files.special_token("audio_token", "<|AUDIO|>");
  return config;
}

std::unique_ptr<MediaProcessor> load_whisper_processor(const ProcessorFiles& files,
                                                       const ProcessorOptions& options) {
  return std::make_unique<WhisperProcessor>(read_whisper_config(files), options);
}

}  // namespace mso
