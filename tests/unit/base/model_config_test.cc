// The Hugging Face configuration made from the model section: from sizes, from a folder, and what wins.
#include "base/model_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mso {
namespace {

using nlohmann::json;

ModelConfig parse(const std::string& text) {
  return parse_config(text, "a.yaml").config.model;
}

TEST(HuggingFaceConfig, FromScratchHasTheFormOfTransformers) {
  const json config =
      hugging_face_config(parse("model: {vision: {hidden_size: 8}, text: {hidden_size: 16, model_type: "
                                "llama}, image_token_index: 259, vision_feature_layer: -1}"));
  EXPECT_EQ(config, json::parse(R"({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
      "vision_config": {"hidden_size": 8, "model_type": "clip_vision_model"}, "text_config": {"hidden_size": 16, "model_type": "llama"},
      "projector_hidden_act": "gelu", "multimodal_projector_bias": true, "image_token_index": 259, "vision_feature_layer": -1,
      "vision_feature_select_strategy": "default"})"));
  EXPECT_FALSE(
      hugging_face_config(parse("model: {vision: {a: 1}, text: {a: 1}}")).contains("image_token_index"));
}

TEST(HuggingFaceConfig, VideoAndSoundAreThereWhereAskedFor) {
  const json config = hugging_face_config(
      parse("model: {vision: {a: 1}, text: {a: 1}, audio: {d_model: 8}, video: {frames: 4}, video_token_index: 260, "
            "audio_token_index: 261}"));
  EXPECT_EQ(config["audio_config"], json::parse(R"({"d_model": 8, "model_type": "qwen2_audio_encoder"})"));
  EXPECT_EQ(config["audio_token_index"], 261);
  EXPECT_EQ(config["video_token_index"], 260);
  EXPECT_EQ(config["video_frames"], 4);
  EXPECT_FALSE(config.contains("spatial_pool_stride"));
  const json plain = hugging_face_config(parse("model: {vision: {a: 1}, text: {a: 1}}"));
  for (const char* key : {"audio_config", "audio_token_index", "video_token_index", "video_frames", "spatial_pool_stride"})
    EXPECT_FALSE(plain.contains(key)) << key;
  EXPECT_THROW(parse("model: {path: a, audio: {d_model: 8}}"), ConfigError);
}

TEST(HuggingFaceConfig, NothingOrHalfAModelIsRefused) {
  for (const char* text : {"", "model: {vision: {a: 1}}", "model: {text: {a: 1}}"}) {
    try {
      hugging_face_config(parse(text));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    }
  }
}

TEST(HuggingFaceConfig, OfAFolderWithValuesThatWin) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("mso-model-config-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  auto write = [&](const std::string& text) { std::ofstream(folder / "config.json") << text; };
  ModelConfig model;
  model.path = folder;
  model.vision_feature_select_strategy = "auto";

  write(
      R"({"model_type": "llava", "image_token_index": 32000, "vision_feature_layer": [-2, -5], "kept": 1})");
  json config = hugging_face_config(model);
  EXPECT_EQ(config["image_token_index"], 32000);
  EXPECT_EQ(config["vision_feature_layer"], json::array({-2, -5}));
  EXPECT_EQ(config["vision_feature_select_strategy"], "default");
  EXPECT_EQ(config["kept"], 1);

  model.image_token_index = 7;
  model.vision_feature_layer = -1;
  model.vision_feature_select_strategy = "full";
  config = hugging_face_config(model);
  EXPECT_EQ(config["image_token_index"], 7);
  EXPECT_EQ(config["vision_feature_layer"], -1);
  EXPECT_EQ(config["vision_feature_select_strategy"], "full");

  model.image_token_index.reset();
  write(R"({"model_type": "llava", "image_token_id": 9})");  // transformers 5
  EXPECT_EQ(hugging_face_config(model)["image_token_index"], 9);

  for (const char* bad :
       {"", "{", "3", "[]", "{}", R"({"model_type": "clip"})", R"({"model_type": 3})", "\xff\xfe"}) {
    write(bad);
    EXPECT_THROW(hugging_face_config(model), Error) << bad;
  }
  std::filesystem::remove_all(folder);
  EXPECT_THROW(hugging_face_config(model), Error);
}

}  // namespace
}  // namespace mso
