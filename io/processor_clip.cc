#include "io/processor_clip.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {
namespace {

constexpr int kLargestPatch = 1 << 12;

// Of the encoder in config.json. Null where there is none.
const nlohmann::json* vision_config(const ProcessorFiles& files) {
  const auto it = files.model.json.find("vision_config");
  return it != files.model.json.end() && it->is_object() ? &*it : nullptr;
}

}  // namespace

VisionTokens read_vision_tokens(const ProcessorFiles& files) {
  VisionTokens tokens;
  tokens.image_token = files.special_token("image_token", tokens.image_token);
  const ConfigKeys processor = files.processor.keys("processor");
  processor.read("patch_size", 1, kLargestPatch, &tokens.patch_size);
  processor.read("num_additional_image_tokens", 0, 1 << 16, &tokens.additional);
  processor.read("vision_feature_select_strategy", &tokens.strategy);
  const ConfigKeys model = files.model.keys("model");
  if (tokens.strategy.empty()) model.read("vision_feature_select_strategy", &tokens.strategy);
  if (tokens.patch_size == 0) {
    if (const auto* vision = vision_config(files)) {
      const ConfigKeys keys(*vision, "vision_config", files.model.origin);
      keys.read("patch_size", 1, kLargestPatch, &tokens.patch_size);
      std::string type = "clip_vision_model";
      keys.read("model_type", &type);
      tokens.additional = type.starts_with("siglip") ? 0 : 1;  // SigLIP has no class token
    }
  }
  if (tokens.patch_size == 0)
    throw Error("processor: patch_size is missing", files.place(files.processor),
                "set it in processor_config.json to the vision encoder's", ExitCode::kBadUsage);
  if (!tokens.strategy.empty() && tokens.strategy != "default" && tokens.strategy != "full")
    processor.wrong("vision_feature_select_strategy", "\"default\" or \"full\"");
  return tokens;
}

ClipProcessor::ClipProcessor(std::string family, const ImageProcessorConfig& config, VisionTokens tokens,
                             ProcessorOptions options)
    : MediaProcessor(std::move(options)),
      family_(std::move(family)),
      processor_(config, this->options().image_backend),
      tokens_(std::move(tokens)) {}

MediaPlaceholders ClipProcessor::placeholders() const {
  return tokens_.patch_size > 0 ? MediaPlaceholders{tokens_.image_token, "", ""} : MediaPlaceholders{};
}

ProcessedMedia ClipProcessor::image(const Image& image, PictureSize) const {
  ProcessedMedia media;
  HostTensor pixels = tensor(DType::kF32, {1, 3, processor_.height(), processor_.width()});
  processor_.process(image, pixels.data<float>());
  media.tensors.emplace("pixel_values", std::move(pixels));
  if (tokens_.patch_size > 0)
    media.tokens = {{tokens_.image_token, tokens_.count(processor_.height(), processor_.width()), true}};
  return media;
}

int64_t ClipProcessor::image_tokens(int, int) const {
  return tokens_.patch_size > 0 ? tokens_.count(processor_.height(), processor_.width()) : 0;
}

uint64_t ClipProcessor::image_bytes(int, int) const { return processor_.size() * sizeof(float); }

DecodeOptions ClipProcessor::decode_options(int width, int height, bool exact) const {
  return processor_.decode_options(width, height, exact);
}

std::map<std::string, std::string> ClipProcessor::files() const {
  std::map<std::string, std::string> files{{"preprocessor_config.json", to_json(processor_.config())}};
  if (tokens_.patch_size > 0) {
    nlohmann::ordered_json j;
    j["image_token"] = tokens_.image_token;
    j["num_additional_image_tokens"] = tokens_.additional;
    j["patch_size"] = tokens_.patch_size;
    j["processor_class"] = "LlavaProcessor";
    if (!tokens_.strategy.empty()) j["vision_feature_select_strategy"] = tokens_.strategy;
    files["processor_config.json"] = to_file(j);
  }
  return files;
}

std::unique_ptr<MediaProcessor> load_clip_processor(const ProcessorFiles& files,
                                                    const ProcessorOptions& options) {
  files.require_image_processor();
  const ImageProcessorConfig config = parse_image_processor(files.image.json.dump(), files.image.origin);
  VisionTokens tokens;
  if (files.family == "llava") tokens = read_vision_tokens(files);
  return std::make_unique<ClipProcessor>(files.family, config, std::move(tokens), options);
}

}  // namespace mso
