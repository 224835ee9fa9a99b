// What a configuration can get wrong about model, tokenizer and template is refused before anything starts, by the same
// function for `mso train` and `mso plan`.
#include "exec/model_setup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mso {
namespace {

constexpr const char* kTiny =
    "model: {tokenizer: bytes, vision: {hidden_size: 8, intermediate_size: 8, num_hidden_layers: 2, num_attention_heads: 2, "
    "image_size: 16, patch_size: 8}, text: {vocab_size: 264, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, "
    "num_attention_heads: 2}}\n";

Config tiny(const std::function<void(Config&)>& change = {}) {
  Config config = parse_config(kTiny, "a.yaml").config;
  if (change) change(config);
  return config;
}

std::string refusal(const std::function<void(Config&)>& change) {
  try {
    check_model_inputs(tiny(change));
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
    return e.what();
  }
}

TEST(ModelInputs, AutoImageTokenIsTheTokenizers) {
  EXPECT_EQ(check_model_inputs(tiny()).model.image_token_index, 259);  // <image> of the byte tokenizer
  const ModelInputs given = check_model_inputs(tiny([](Config& c) { c.model.image_token_index = 260; }));
  EXPECT_EQ(given.model.image_token_index, 260);
  EXPECT_EQ(given.samples.image_token, 260);
}

TEST(ModelInputs, VideoAndSoundTakeTheTokenizersTokensWhereAskedFor) {
  const LlavaConfig plain = check_model_inputs(tiny()).model;
  EXPECT_FALSE(plain.video || plain.audio);
  const LlavaConfig omni = check_model_inputs(tiny([](Config& c) {
                             c.model.video.frames = 4;
                             c.model.video.pool = 1;
                             c.model.audio = {{"d_model", 8}, {"encoder_attention_heads", 2}, {"max_source_positions", 10}};
                           })).model;
  EXPECT_EQ(omni.video_token_index, 260);
  EXPECT_EQ(omni.video->frames, 4);
  EXPECT_EQ(omni.positions_per_frame(), 4);
  EXPECT_EQ(omni.audio_token_index, 261);
  EXPECT_EQ(omni.audio->positions_per_clip(), 5);
  EXPECT_EQ(check_model_inputs(tiny([](Config& c) { c.model.video_token_index = 262; })).model.video_token_index, 262);
}

TEST(ModelInputs, ConfigJsonWinsOverTheTokenizer) {
  char name[] = "/tmp/mso-setup-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  const std::string rest =
      R"("model_type": "llava", "vision_config": {"image_size": 16, "patch_size": 8, "hidden_size": 8, "num_attention_heads": 2},
         "text_config": {"vocab_size": 264, "hidden_size": 8, "num_attention_heads": 2}})";
  auto index = [&](const std::string& first) {
    std::ofstream(folder / "config.json") << "{" << first << rest;
    return check_model_inputs(tiny([&](Config& c) {
             c.model.path = folder;
             c.model.vision = c.model.text = nlohmann::json::object();
           }))
        .model.image_token_index;
  };
  EXPECT_EQ(index(R"("image_token_index": 7, )"), 7);
  EXPECT_EQ(index(R"("image_token_id": 8, )"), 8);
  EXPECT_EQ(index(""), 259);
  std::filesystem::remove_all(folder);
}

TEST(ModelInputs, RefusesWhatTrainingWouldRefuse) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.image_token_index = 264; }), "image_token_index 264");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.text["vocab_size"] = 260; }), "more tokens");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.text["hiden_size"] = 8; }), "hidden_size");  // strict
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.tokenizer = "/nowhere"; }), "/nowhere");
  EXPECT_PRED2(has, refusal([](Config& c) { c.train.device = "cuda"; }), "cuda");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.prompt_template = "<image>"; }), "{caption}");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.caption = "json"; }), "data.caption");
  EXPECT_PRED2(has, refusal([](Config& c) { c.data.image_size = 32; }), "data.image_size");
  EXPECT_PRED2(has, refusal([](Config& c) { c.model.path = "/nowhere"; }), "/nowhere/config.json");
}

}  // namespace
}  // namespace mso
