// Sizes computed from the configuration against the models that transformers builds (make_llava_shapes.py).
#include "plan/model_summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "model/hf_config.h"
#include "model/parameters.h"

namespace mso {
namespace {

using nlohmann::json;

json fixture() {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return json::parse(
      read_file(std::filesystem::path(directory ? directory : ".") / "tests/unit/plan/llava_shapes.json"));
}

json small() {
  return fixture().at("small").at("config");
}

const StageSummary& stage(const ModelSummary& model, const std::string& name) {
  return *std::ranges::find(model.stages, name, &StageSummary::name);
}

TEST(LlavaParameterShapes, HaveTheNamesAndShapesOfTransformers) {
  int compared = 0;
  const json cases = fixture();
  for (const auto& [name, entry] : cases.items()) {
    if (!entry.is_object() || !entry["parameters"].is_object()) continue;
    std::map<std::string, std::vector<int64_t>> ours, theirs = entry["parameters"];
    for (const ParameterSpec& parameter : llava_parameters(parse_llava_config(entry["config"].dump(), name)))
      ours[parameter.name] = parameter.shape;
    EXPECT_EQ(ours, theirs) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST(ModelSummary, CountsOfEachStageAreThoseOfTransformers) {
  const json cases = fixture();
  for (const auto& [name, entry] : cases.items()) {
    if (!entry.is_object()) continue;
    const ModelSummary model = summarise_llava(entry["config"]);
    ASSERT_EQ(model.stages.size(), 3u);
    for (const StageSummary& stage : model.stages)
      EXPECT_EQ(stage.parameters, entry["totals"][stage.name]) << name;
  }
}

TEST(ModelSummary, VisionLayersBehindTheFeatureLayerAreNotTrained) {
  const json config = small();  // three layers, features of the second
  const int64_t layer = 4 * (48 * 48 + 48) + 2 * 2 * 48 + (80 * 48 + 80) + (48 * 80 + 48);
  const StageSummary vision = stage(summarise_llava(config), "vision_encoder");
  EXPECT_EQ(vision.parameters - vision.trainable_parameters, layer + 2 * 48);  // and post_layernorm
  json last = config;
  last["vision_feature_layer"] = -1;
  const StageSummary all = stage(summarise_llava(last), "vision_encoder");
  EXPECT_EQ(all.parameters - all.trainable_parameters, 2 * 48);
  json none = config;
  none["vision_feature_layer"] = 0;  // the embeddings
  EXPECT_EQ(stage(summarise_llava(none), "vision_encoder").trainable_parameters,
            vision.trainable_parameters - 2 * layer);
}

TEST(ModelSummary, FreezesByStageAndByPattern) {
  const ModelSummary by_stage = summarise_llava(small(), {"vision_encoder", "llm_decoder"});
  EXPECT_EQ(by_stage.trainable_parameters(), stage(by_stage, "projector").parameters);
  const ModelSummary by_pattern = summarise_llava(small(), {"*.self_attn.?_proj.weight", "*embed_tokens*"});
  EXPECT_EQ(stage(by_pattern, "llm_decoder").trainable_parameters,
            stage(by_pattern, "llm_decoder").parameters - 320 * 64 - 2 * (2 * 64 * 64 + 2 * 32 * 64));
  // All frozen is a legal model, if one without use.
  EXPECT_EQ(summarise_llava(small(), {"*"}).trainable_parameters(), 0);
}

TEST(ModelSummary, AFreezePatternThatSelectsNothingIsRefused) {
  try {
    summarise_llava(small(), {"vision_encoder", "vision_encodre"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    EXPECT_NE(std::string(error.what()).find("vision_encodre"), std::string::npos);
  }
}

TEST(ModelSummary, CountsImagePositions) {
  EXPECT_EQ(summarise_llava(small()).image_positions, 16);
  json full = small();
  full["vision_feature_select_strategy"] = "full";
  EXPECT_EQ(summarise_llava(full).image_positions, 17);
  EXPECT_EQ(summarise_llava(fixture().at("llava-1.5-7b").at("config")).image_positions, 576);
}

TEST(ModelSummary, VideoAndSoundAreCounted) {
  json omni = small();  // 16 patches of an image, decoder of 64
  omni["video_token_index"] = 301;
  omni["audio_token_index"] = 302;
  omni["audio_config"] = {{"num_mel_bins", 20},           {"d_model", 24},         {"encoder_layers", 2},
                          {"encoder_attention_heads", 4}, {"encoder_ffn_dim", 40}, {"max_source_positions", 12}};
  const ModelSummary plain = summarise_llava(small()), model = summarise_llava(omni);
  EXPECT_EQ(plain.frame_positions, 0);
  EXPECT_EQ(plain.audio_positions, 0);
  EXPECT_EQ(model.frame_positions, 4);
  EXPECT_EQ(model.audio_positions, 6);
  ASSERT_EQ(model.stages.size(), 5u);
  EXPECT_EQ(model.stages[2].name, "audio_encoder");
  EXPECT_EQ(model.stages[3].name, "audio_projector");
  EXPECT_EQ(stage(model, "audio_projector").parameters, 24 * 64 + 64);
  const int64_t layer = 4 * 24 * 24 + 3 * 24 + 4 * 24 + 2 * 24 * 40 + 40 + 24, positions = 12 * 24;
  EXPECT_EQ(stage(model, "audio_encoder").parameters,
            3 * 20 * 24 + 24 + 3 * 24 * 24 + 24 + positions + 2 * layer + 2 * 24);
  EXPECT_EQ(stage(model, "audio_encoder").trainable_parameters, stage(model, "audio_encoder").parameters - positions);
  // Two rows behind the convolutions for each position: matrices, the first convolution twice, attention scores.
  EXPECT_DOUBLE_EQ(stage(model, "audio_encoder").flops_per_position,
                   2 * (2.0 * (2 * 3 * 20 * 24 + 3 * 24 * 24 + 2 * (4 * 24 * 24 + 2 * 24 * 40)) + 4.0 * 2 * 12 * 24));
  // A frame has as many patches as an image and a quarter of the positions.
  EXPECT_DOUBLE_EQ(stage(model, "vision_encoder").flops_per_position,
                   4 * stage(plain, "vision_encoder").flops_per_position);
  EXPECT_EQ(stage(model, "llm_decoder"), [&] {
    StageSummary same = stage(plain, "llm_decoder");
    same.inputs.push_back("audio_projector");
    return same;
  }());
  EXPECT_EQ(summarise_llava(omni, {"audio_encoder"}).trainable_parameters(),
            model.trainable_parameters() - stage(model, "audio_encoder").trainable_parameters);
}

TEST(ModelSummary, FlopsOfTheDecoderAreTwoPerMatrixWeight) {
  // Everything but the looked-up embeddings and the norms.
  const StageSummary decoder = stage(summarise_llava(small()), "llm_decoder");
  EXPECT_DOUBLE_EQ(decoder.flops_per_position, 2.0 * (102720 - 320 * 64 - 5 * 64));
}

TEST(ModelSummary, TiedEmbeddingsAreCountedOnceButMultipliedStill) {
  json tied = small();
  tied["text_config"]["tie_word_embeddings"] = true;
  const StageSummary a = stage(summarise_llava(small()), "llm_decoder"),
                     b = stage(summarise_llava(tied), "llm_decoder");
  EXPECT_EQ(a.parameters - b.parameters, 320 * 64);
  EXPECT_EQ(a.flops_per_position, b.flops_per_position);
}

TEST(ModelSummary, RecomputationKeepsLess) {
  for (const StageSummary& stage : summarise_llava(fixture().at("llava-1.5-7b").at("config")).stages) {
    EXPECT_LE(stage.recomputed_elements, stage.activation_elements);
    EXPECT_GT(stage.recomputed_elements, 0);
  }
}

TEST(ModelSummary, RefusesSizesThatMakeNoSense) {
  const std::vector<std::pair<json::json_pointer, json>> bad = {
      {"/text_config/hidden_size"_json_pointer, 0},
      {"/text_config/hidden_size"_json_pointer, -64},
      {"/text_config/hidden_size"_json_pointer, "64"},
      {"/text_config/hidden_size"_json_pointer, 64.5},
      {"/text_config/hidden_size"_json_pointer, 66},
      {"/text_config/hidden_size"_json_pointer, 18446744073709551615u},
      {"/text_config/vocab_size"_json_pointer, 9223372036854775807},
      {"/text_config/num_key_value_heads"_json_pointer, 3},
      {"/text_config/attention_bias"_json_pointer, "no"},
      {"/text_config"_json_pointer, json::array({1})},
      {"/vision_config/num_attention_heads"_json_pointer, 5},
      {"/vision_config/image_size"_json_pointer, 6},
      {"/vision_config/image_size"_json_pointer, json::array({28, 28})},
      {"/vision_config"_json_pointer, "clip"},
      {"/vision_feature_layer"_json_pointer, -5},
      {"/vision_feature_layer"_json_pointer, 4},
      {"/vision_feature_layer"_json_pointer, json::array({-2, -5})},
      {"/vision_feature_layer"_json_pointer, json::array()},
      {"/vision_feature_layer"_json_pointer, json::array({"a"})},
  };
  for (const auto& [where, value] : bad) {
    json config = small();
    config[where] = value;
    try {
      summarise_llava(config);
      ADD_FAILURE() << where.to_string() << " = " << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage) << error.what();
    }
  }
}

}  // namespace
}  // namespace mso
