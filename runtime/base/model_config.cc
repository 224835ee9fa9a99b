#include "base/model_config.h"

#include "base/file.h"
#include "base/json_text.h"

namespace mso {

using nlohmann::json;

namespace {

json read_config_json(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw Error("no model there", path.string() + " does not exist",
                "model.path is a Hugging Face folder with config.json", ExitCode::kBadUsage);
  json config;
  try {
    config = parse_shallow_json(read_file(path, uint64_t{1} << 24));
  } catch (const json::exception& error) {
    throw Error("cannot read the model's configuration", path.string() + ": " + error.what(), "",
                ExitCode::kBadUsage);
  }
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || type == config.end() || *type != "llava")
    throw Error("unknown model family",
                path.string() + ": model_type is " +
                    (config.is_object() && type != config.end() ? type->dump() : "missing"),
                "llava is available", ExitCode::kBadUsage);
  return config;
}

json from_scratch(const ModelConfig& model) {
  if (model.vision.empty() || model.text.empty())
    throw Error("no model given", "model.path is empty, and so is model.vision or model.text",
                "name a Hugging Face folder, or give the sizes of both parts", ExitCode::kBadUsage);
  json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                 {"model_type", "llava"},
                 {"vision_config", model.vision},
                 {"text_config", model.text},
                 {"projector_hidden_act", model.projector_hidden_act},
                 {"multimodal_projector_bias", model.multimodal_projector_bias}};
  config["vision_config"].emplace("model_type", "clip_vision_model");
  config["text_config"].emplace("model_type", "llama");
  if (!model.audio.empty()) {
    config["audio_config"] = model.audio;
    config["audio_config"].emplace("model_type", "qwen2_audio_encoder");
  }
  return config;
}

}  // namespace

json hugging_face_config(const ModelConfig& model) {
  json config = model.path.empty() ? from_scratch(model) : read_config_json(model.path);
  auto token = [&](const std::string& medium, const std::optional<int64_t>& given) {
    const std::string index = medium + "_token_index", newer = medium + "_token_id";
    if (given)
      config[index] = *given;
    else if (!config.contains(index) && config.contains(newer))
      config[index] = config[newer];
  };
  token("image", model.image_token_index);
  token("video", model.video_token_index);
  token("audio", model.audio_token_index);
  if (model.video.frames) config["video_frames"] = *model.video.frames;
  if (model.video.pool) config["spatial_pool_stride"] = *model.video.pool;
  if (model.vision_feature_layer)
    config["vision_feature_layer"] = *model.vision_feature_layer;
  else
    config.emplace("vision_feature_layer", -2);
  if (model.vision_feature_select_strategy != "auto")
    config["vision_feature_select_strategy"] = model.vision_feature_select_strategy;
  else
    config.emplace("vision_feature_select_strategy", "default");
  return config;
}

}  // namespace mso
