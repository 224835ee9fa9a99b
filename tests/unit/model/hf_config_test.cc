// Hugging Face configurations, names, parameters and exports: what is read, what is refused.
#include "model/hf_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "model/hf_export.h"
#include "model/hf_names.h"
#include "model/model_options.h"

namespace mso {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

fs::path tiny_case() {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return fs::path(directory ? directory : ".") / "tests/reference/cases/llava_tiny";
}

Json small() {
  return {{"model_type", "llava"},
          {"image_token_index", 9},
          {"vision_config",
           {{"hidden_size", 8},
            {"intermediate_size", 12},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 2},
            {"image_size", 8},
            {"patch_size", 4}}},
          {"text_config",
           {{"vocab_size", 10},
            {"hidden_size", 16},
            {"intermediate_size", 24},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4}}}};
}
// With video and sound.
Json omni() {
  Json json = small();
  json["video_token_index"] = 8;
  json["video_frames"] = 6;
  json["spatial_pool_stride"] = 1;
  json["audio_token_index"] = 7;
  json["audio_config"] = {{"num_mel_bins", 5},           {"d_model", 12},         {"encoder_layers", 2},
                          {"encoder_attention_heads", 2}, {"encoder_ffn_dim", 20}, {"max_source_positions", 7}};
  return json;
}
LlavaConfig parse(const Json& json, bool strict = false) {
  return parse_llava_config(json.dump(), "test", strict);
}
Json with(const std::string& pointer, const Json& value) {
  Json json = small();
  json[Json::json_pointer(pointer)] = value;
  return json;
}
void refused(const Json& json, const std::string& name, bool strict = false) {
  try {
    parse(json, strict);
    ADD_FAILURE() << name << " was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    EXPECT_EQ(e.exit_code(), ExitCode::kBadUsage);
  }
}

TEST(LlavaConfig, HasTheDefaultsOfTransformers) {
  const LlavaConfig c = parse({{"model_type", "llava"},
                               {"vision_config", Json::object()},
                               {"text_config", Json::object()},
                               {"image_token_index", 5}});
  EXPECT_EQ(c.vision.hidden_size, 768);
  EXPECT_EQ(c.vision.patch_size, 32);
  EXPECT_EQ(c.text.hidden_size, 4096);
  EXPECT_EQ(c.text.num_key_value_heads, 32);
  EXPECT_EQ(c.text.head_dim, 128);
  EXPECT_EQ(c.text.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.vision_feature_layers, std::vector<int64_t>{-2});
  EXPECT_EQ(c.vision_layers_run(), 11);
  EXPECT_FALSE(c.keep_class_token);
  EXPECT_TRUE(c.projector_bias);
}

TEST(LlavaConfig, ReadsTheFileOfTransformers5) {
  const LlavaConfig c = read_llava_config(tiny_case());
  EXPECT_EQ(c.image_token_index, 49);
  EXPECT_EQ(c.text.rope.theta, 10000);
  EXPECT_EQ(c.vision.patches(), 4);
}

TEST(LlavaConfig, ReadsBothSpellings) {
  Json json = small();
  json.erase("image_token_index");
  json["image_token_id"] = 7;
  EXPECT_EQ(parse(json).image_token_index, 7);
  json["image_token_index"] = 8;  // what our configuration overrides
  EXPECT_EQ(parse(json).image_token_index, 8);

  EXPECT_EQ(parse(with("/text_config/rope_theta", 5e5)).text.rope.theta, 5e5);
  EXPECT_EQ(parse(with("/text_config/rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}))
                .text.rope.theta,
            5e5);
  EXPECT_EQ(parse(with("/text_config/rope_scaling", {{"type", "linear"}, {"factor", 4.0}})).text.rope.factor,
            4);
  EXPECT_EQ(parse(with("/text_config/rope_scaling", nullptr)).text.rope.type, "default");
  const RopeConfig llama3 =
      parse(with("/text_config/rope_scaling", {{"rope_type", "llama3"},
                                               {"factor", 8.0},
                                               {"low_freq_factor", 1.0},
                                               {"high_freq_factor", 4.0},
                                               {"original_max_position_embeddings", 8192}}))
          .text.rope;
  EXPECT_EQ(llama3.type, "llama3");
  EXPECT_EQ(llama3.original_max_position_embeddings, 8192);

  EXPECT_TRUE(parse(with("/tie_word_embeddings", true)).text.tie_word_embeddings);
  EXPECT_TRUE(parse(with("/text_config/tie_word_embeddings", true)).text.tie_word_embeddings);
  EXPECT_EQ(parse(with("/vision_feature_layer", {-2, 1})).feature_states(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(parse(with("/vision_feature_select_strategy", "full")).positions_per_image(), 5);
}

TEST(LlavaConfig, RefusesByNameWhatChangesTheMaths) {
  refused(with("/model_type", "llava_next"), "llava_next");
  refused(with("/vision_config/model_type", "siglip_vision_model"), "siglip_vision_model");
  refused(with("/text_config/model_type", "qwen2"), "qwen2");
  refused(with("/text_config/hidden_act", "gelu"), "hidden_act");
  refused(with("/vision_config/hidden_act", "gelu_new"), "gelu_new");
  refused(with("/projector_hidden_act", "relu"), "relu");
  refused(with("/text_config/attention_dropout", 0.1), "attention_dropout");
  refused(with("/vision_config/attention_dropout", 0.1), "attention_dropout");
  refused(with("/text_config/rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}), "yarn");
  refused(with("/text_config/rope_scaling", {{"rope_type", "linear"}}), "factor");
  refused(with("/text_config/rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}), "low_freq_factor");
  refused(with("/text_config/rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
          "partial_rotary_factor");
  refused(with("/text_config/sliding_window", 4096), "sliding_window");
  refused(with("/quantization_config", {{"bits", 4}}), "quantization_config");
  refused(with("/vision_feature_select_strategy", "cls"), "cls");
}

TEST(LlavaConfig, RefusesImpossibleSizes) {
  refused(with("/vision_feature_layer", -5), "vision_feature_layer");
  refused(with("/vision_feature_layer", 4), "vision_feature_layer");
  refused(with("/vision_feature_layer", Json::array()), "vision_feature_layer");
  refused(with("/vision_feature_layer", "last"), "vision_feature_layer");
  refused(with("/image_token_index", 10), "image_token_index");
  refused(with("/image_token_index", -1), "image_token_index");
  refused(with("/vision_config/num_attention_heads", 3), "num_attention_heads");
  refused(with("/vision_config/patch_size", 9), "patch_size");
  refused(with("/text_config/num_key_value_heads", 3), "num_key_value_heads");
  refused(with("/text_config/head_dim", 5), "head_dim");
  refused(with("/text_config/hidden_size", 0), "hidden_size");
  refused(with("/text_config/hidden_size", 1.5), "hidden_size");
  refused(with("/text_config/hidden_size", "16"), "hidden_size");
  refused(with("/text_config/vocab_size", int64_t{1} << 40), "vocab_size");
  refused(with("/text_config", 3), "text_config");
  Json json = small();
  json.erase("vision_config");
  refused(json, "vision_config");
  EXPECT_THROW(parse_llava_config("{", "test"), Error);
  EXPECT_THROW(parse_llava_config("[]", "test"), Error);
}

TEST(LlavaConfig, ReadsVideoAndSoundUnderTheNamesOfTransformers) {
  const LlavaConfig none = parse(small());
  EXPECT_FALSE(none.audio);
  EXPECT_FALSE(none.video);
  EXPECT_EQ(none.positions_per_frame(), 0);

  for (bool strict : {false, true}) {
    const LlavaConfig c = parse(omni(), strict);
    EXPECT_EQ(c.video_token_index, 8);
    EXPECT_EQ(c.video->frames, 6);
    EXPECT_EQ(c.positions_per_frame(), 4);
    EXPECT_EQ(c.audio_token_index, 7);
    EXPECT_EQ(c.audio->num_mel_bins, 5);
    EXPECT_EQ(c.audio->mel_frames(), 14);
    EXPECT_EQ(c.audio->positions_per_clip(), 3);  // the odd last one is left out, as by AvgPool1d
  }

  Json json = small();
  json["audio_config"] = {{"model_type", "qwen2_audio_encoder"}};  // Qwen2-Audio's own sizes
  json["audio_token_id"] = 3;
  json["video_token_id"] = 4;
  const LlavaConfig defaults = parse(json);
  EXPECT_EQ(defaults.audio_token_index, 3);
  EXPECT_EQ(defaults.audio->d_model, 1280);
  EXPECT_EQ(defaults.audio->encoder_layers, 32);
  EXPECT_EQ(defaults.audio->positions_per_clip(), 750);
  EXPECT_EQ(defaults.video_token_index, 4);
  EXPECT_EQ(defaults.video->pool, 2);
  EXPECT_EQ(defaults.positions_per_frame(), 1);
  json["spatial_pool_stride"] = 1;
  json["vision_feature_select_strategy"] = "full";
  EXPECT_EQ(parse(json).positions_per_frame(), 4);  // no class token in a grid
  EXPECT_EQ(parse(json).positions_per_image(), 5);
  json.erase("video_token_id");
  EXPECT_FALSE(parse(json).video);  // a stride alone asks for nothing
}

TEST(LlavaConfig, RefusesVideoAndSoundThatCannotBe) {
  auto with_omni = [](const std::string& pointer, const Json& value) {
    Json json = omni();
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  refused(with_omni("/audio_config/model_type", "whisper"), "whisper");
  refused(with_omni("/audio_config/d_model", 13), "d_model");
  refused(with_omni("/audio_config/encoder_attention_heads", 5), "encoder_attention_heads");
  refused(with_omni("/audio_config/max_source_positions", 1), "max_source_positions");
  refused(with_omni("/audio_config/activation_function", "relu"), "relu");
  refused(with_omni("/audio_config/dropout", 0.1), "dropout");
  refused(with_omni("/audio_config/encoder_layerdrop", 0.1), "encoder_layerdrop");
  refused(with_omni("/audio_config/scale_embedding", true), "scale_embedding");
  refused(with_omni("/audio_config/num_mel_bin", 3), "did you mean 'num_mel_bins'", true);
  refused(with_omni("/audio_token_index", 10), "audio_token_index 10 is not below");
  refused(with_omni("/audio_token_index", 9), "is the image token");
  refused(with_omni("/video_token_index", 7), "is the audio token");
  refused(with_omni("/video_token_index", 9), "is the image token");
  refused(with_omni("/video_frames", 0), "video_frames");
  refused(with_omni("/spatial_pool_stride", 3), "spatial_pool_stride 3 is more than the 2 patches");
  refused(with_omni("/spatial_pool_mode", "max"), "spatial_pool_mode");
  Json json = omni();
  json.erase("audio_token_index");
  refused(json, "audio_config without audio_token_index");
  json = omni();
  json.erase("video_token_index");
  refused(json, "video without video_token_index");
  json = omni();
  json.erase("audio_config");
  refused(json, "audio_token_index without audio_config", true);
}

TEST(LlavaConfig, StrictNamesTheNearestKey) {
  EXPECT_NO_THROW(parse(small(), true));
  EXPECT_NO_THROW(parse(with("/text_config/hiden_size", 16)));
  refused(with("/text_config/hiden_size", 16), "did you mean 'hidden_size'", true);
  refused(with("/vision_config/patch", 4), "'patch'", true);
  refused(with("/vision_featur_layer", 4), "did you mean 'vision_feature_layer'", true);
}

TEST(LlavaConfig, SurvivesAnExport) {
  for (const Json& json : {small(),
                           with("/text_config/rope_scaling", {{"rope_type", "llama3"},
                                                              {"factor", 8.0},
                                                              {"low_freq_factor", 1.0},
                                                              {"high_freq_factor", 4.0},
                                                              {"original_max_position_embeddings", 64}}),
                           with("/tie_word_embeddings", true), with("/vision_feature_layer", {-2, 1}),
                           with("/vision_config/hidden_act", "gelu"), omni()}) {
    const std::string once = exported_config(parse(json), json.dump());
    EXPECT_EQ(exported_config(parse(Json::parse(once)), once), once);
    EXPECT_FALSE(
        Json::parse(once)["text_config"].contains("rope_parameters"));  // transformers 4.57 does not know it
  }
  const Json kept = Json::parse(exported_config(parse(small()), with("/text_config/bos_token_id", 3).dump()));
  EXPECT_EQ(kept["text_config"]["bos_token_id"], 3);
}

TEST(Names, AllSpellingsBecomeTheHubs) {
  const std::string vision = "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight";
  for (const char* name :
       {"vision_tower.encoder.layers.0.mlp.fc1.weight", "model.vision_tower.encoder.layers.0.mlp.fc1.weight",
        "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
        "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"})
    EXPECT_EQ(logical_name(name), vision);
  for (const char* name :
       {"model.language_model.norm.weight", "language_model.model.norm.weight", "language_model.norm.weight"})
    EXPECT_EQ(logical_name(name), "language_model.model.norm.weight");
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"})
    EXPECT_EQ(logical_name(name), "language_model.lm_head.weight");
  for (const char* name :
       {"model.multi_modal_projector.linear_1.bias", "multi_modal_projector.linear_1.bias"})
    EXPECT_EQ(logical_name(name), "multi_modal_projector.linear_1.bias");
  EXPECT_EQ(logical_name("something.else"), "something.else");
}

TEST(Parameters, UnusedOnesAreFrozenAndInTheModel) {
  ModelOptions options;
  options.config_json = small().dump();
  const ModelOutline outline = outline_model(options);
  std::vector<std::string> frozen;
  for (const FlatTensor& t : outline.layouts.frozen.tensors) frozen.push_back(t.name);
  EXPECT_EQ(frozen.size(), 16u + 2);  // the last of three vision layers, and the norm behind it
  EXPECT_TRUE(std::ranges::all_of(frozen, [](const std::string& n) {
    return n.find("encoder.layers.2.") != n.npos || n.find("post_layernorm") != n.npos;
  }));
}

TEST(Parameters, FreezeByStageAndPattern) {
  const auto specs = llava_parameters(parse(small()));
  auto count = [&](const std::vector<std::string>& patterns) {
    const std::vector<bool> frozen = frozen_parameters(specs, patterns);
    return std::ranges::count(frozen, true);
  };
  const auto unused = count({});
  EXPECT_EQ(count({"projector"}), unused + 4);
  EXPECT_EQ(count({"*.q_proj.weight"}), unused + 2 + 2);
  EXPECT_EQ(count({"language_model.lm_head.weight", "language_model.lm_*"}), unused + 1);
  EXPECT_THROW(count({"proj"}), Error);
  EXPECT_THROW(count({"projector", "nothing*"}), Error);
}

TEST(Parameters, SoundHasThoseOfQwen2Audio) {
  const auto specs = llava_parameters(parse(omni()));
  auto find = [&](const std::string& name) {
    auto it = std::ranges::find(specs, name, &ParameterSpec::name);
    EXPECT_NE(it, specs.end()) << name;
    return it == specs.end() ? ParameterSpec() : *it;
  };
  EXPECT_EQ(find("audio_tower.conv1.weight").shape, (std::vector<int64_t>{12, 5, 3}));
  EXPECT_EQ(find("audio_tower.conv2.weight").shape, (std::vector<int64_t>{12, 12, 3}));
  EXPECT_EQ(find("audio_tower.layers.1.fc2.weight").shape, (std::vector<int64_t>{12, 20}));
  EXPECT_EQ(find("audio_projector.linear.weight").shape, (std::vector<int64_t>{16, 12}));
  EXPECT_EQ(std::ranges::count(specs, "audio_tower.layers.0.self_attn.k_proj.bias", &ParameterSpec::name), 0);
  EXPECT_EQ(std::ranges::count(specs, "audio_encoder", &ParameterSpec::stage), 4 + 1 + 2 * 15 + 2);

  // sinusoids() of modeling_whisper.py
  const ParameterSpec positions = find("audio_tower.embed_positions.weight");
  std::vector<float> values(7 * 12);
  initialise(positions, 1, values.data());
  for (int p = 0; p < 7; ++p)
    for (int k = 0; k < 6; ++k) {
      const double angle = p * std::pow(10000.0, -k / 5.0);
      EXPECT_NEAR(values[static_cast<size_t>(p * 12 + k)], std::sin(angle), 1e-5);
      EXPECT_NEAR(values[static_cast<size_t>(p * 12 + 6 + k)], std::cos(angle), 1e-5);
    }
  const std::vector<bool> frozen = frozen_parameters(specs, {});
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].stage == "audio_encoder") EXPECT_EQ(frozen[i], specs[i].name == positions.name);
  }
  for (const char* name : {"audio_tower.conv1.bias", "model.audio_tower.conv1.bias"})
    EXPECT_EQ(logical_name(name), "audio_tower.conv1.bias");
}

TEST(Parameters, MatricesOfOneInputAreAdjacent) {
  ModelOptions options;
  options.config_json = small().dump();
  const FlatLayout layout = outline_model(options).layouts.trainable;
  auto at = [&](const std::string& name) {
    return *std::ranges::find(layout.tensors, name, &FlatTensor::name);
  };
  const std::string layer = "language_model.model.layers.1.";
  const FlatTensor q = at(layer + "self_attn.q_proj.weight"), k = at(layer + "self_attn.k_proj.weight"),
                   gate = at(layer + "mlp.gate_proj.weight");
  EXPECT_EQ(q.offset + q.count, k.offset);
  EXPECT_EQ(gate.offset + gate.count, at(layer + "mlp.up_proj.weight").offset);
}

TEST(Parameters, InitialValuesDependOnSeedAndNameAlone) {
  ModelOptions options;
  options.config_json = small().dump();
  options.seed = 5;
  const ModelOutline all = outline_model(options);
  options.freeze = {"vision_encoder"};
  const ModelOutline part = outline_model(options);
  auto fill = [&](const ModelOutline& outline) {
    std::map<std::string, std::vector<float>> values;
    std::vector<float> trainable(outline.layouts.trainable.size), frozen(outline.layouts.frozen.size);
    fill_parameters(options, outline, trainable.data(), frozen.data());
    for (const FlatTensor& t : outline.layouts.trainable.tensors)
      values[t.name] = {&trainable[t.offset], &trainable[t.offset] + t.count};
    for (const FlatTensor& t : outline.layouts.frozen.tensors)
      values[t.name] = {&frozen[t.offset], &frozen[t.offset] + t.count};
    return values;
  };
  const auto values = fill(all);
  EXPECT_EQ(values, fill(part));
  options.seed = 6;
  EXPECT_NE(values, fill(all));
  EXPECT_EQ(values.at("language_model.model.norm.weight"), std::vector<float>(16, 1.0f));
  EXPECT_EQ(values.at("multi_modal_projector.linear_1.bias"), std::vector<float>(16, 0.0f));

  ParameterSpec large{"x", "llm_decoder", {200, 501}, ParameterSpec::Start::kNormal, 0.02};
  std::vector<float> normal(200 * 501);
  initialise(large, 1, normal.data());
  double sum = 0, squares = 0;
  int beyond = 0;
  for (float v : normal) sum += v, squares += double{v} * v, beyond += std::abs(v) > 0.04;
  const double n = static_cast<double>(normal.size());
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.0002);
  EXPECT_NEAR(beyond / n, 0.0455, 0.003);  // two standard deviations
}

TEST(Parameters, LoadNamesWhatDoesNotFit) {
  char name[] = "/tmp/mso-model-XXXXXX";
  const fs::path work = ::mkdtemp(name);
  ModelOptions options;
  options.path = tiny_case();
  const ModelOutline outline = outline_model(options);
  std::vector<float> trainable(outline.layouts.trainable.size), frozen(outline.layouts.frozen.size);
  fill_parameters(options, outline, trainable.data(), frozen.data());
  std::vector<SafetensorsItem> items;
  for (const FlatTensor& t : outline.layouts.trainable.tensors)
    items.push_back({t.name, DType::kF32, t.shape, &trainable[t.offset]});
  for (const FlatTensor& t : outline.layouts.frozen.tensors)
    items.push_back({t.name, DType::kF32, t.shape, &frozen[t.offset]});
  auto message = [&](const std::vector<SafetensorsItem>& written) {
    write_safetensors(work / "model.safetensors", written);
    try {
      load_parameters(SafetensorsFolder(work), outline.layouts, false, trainable.data(), frozen.data());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(items), "");
  auto changed = items;
  changed.erase(changed.begin() + 3);
  EXPECT_NE(message(changed).find(items[3].name), std::string::npos);
  changed = items;
  changed.push_back({"vision_tower.more", DType::kF32, {1}, trainable.data()});
  EXPECT_NE(message(changed).find("vision_tower.more"), std::string::npos);
  changed = items;
  changed[0].shape = {3, 4};
  EXPECT_NE(message(changed).find("[3, 4]"), std::string::npos);
  changed = items;
  changed.push_back({"model." + items[0].name, DType::kF32, items[0].shape, trainable.data()});
  EXPECT_NE(message(changed).find("twice"), std::string::npos);
  changed = items;
  changed.push_back(
      {"vision_tower.vision_model.embeddings.position_ids", DType::kI64, {1}, trainable.data()});
  EXPECT_EQ(message(changed), "");
  fs::remove_all(work);
}

TEST(Export, WholeOrNotAtAll) {
  char name[] = "/tmp/mso-export-XXXXXX";
  const fs::path work = ::mkdtemp(name);
  ModelOptions options;
  options.config_json = small().dump();
  const ModelOutline outline = outline_model(options);
  std::vector<float> values(4096);
  HuggingFaceExport model;
  model.config_json = options.config_json;
  for (const ParameterSpec& spec : outline.parameters)
    model.tensors.push_back({spec.name, DType::kF32, spec.shape, values.data()});
  export_hugging_face(work / "good", model);
  EXPECT_TRUE(fs::exists(work / "good/config.json"));
  EXPECT_EQ(SafetensorsFolder(work / "good").names().size(), model.tensors.size());
  EXPECT_THROW(export_hugging_face(work / "good", model), Error);  // would overwrite
  ModelOptions again;
  again.path = work / "good";
  EXPECT_NO_THROW(outline_model(again));

  auto refused = [&](HuggingFaceExport bad) {
    EXPECT_THROW(export_hugging_face(work / "bad", bad), Error);
    EXPECT_FALSE(fs::exists(work / "bad"));
  };
  HuggingFaceExport bad = model;
  bad.tensors.pop_back();
  refused(bad);
  bad = model;
  bad.tensors.push_back(bad.tensors[0]);
  refused(bad);
  bad = model;
  bad.tensors[2].shape[0] += 1;
  refused(bad);
  bad = model;
  bad.tokenizer_json = "[";
  refused(bad);
  bad = model;
  bad.tokenizer_json = R"({"added_tokens": []})";  // no image token
  refused(bad);
  EXPECT_THROW(export_hugging_face("/proc/nowhere", model), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(work), {}), 1);  // nothing half-written is left
  fs::remove_all(work);
}

}  // namespace
}  // namespace mso
