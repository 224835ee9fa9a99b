#include "model/hf_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/suggest.h"

namespace mso {

namespace {

using Json = nlohmann::json;

// Keys that describe a model without changing what it computes; accepted in strict mode too.
const std::set<std::string> kHarmless = {"model_type",
                                         "architectures",
                                         "transformers_version",
                                         "torch_dtype",
                                         "dtype",
                                         "_name_or_path",
                                         "_attn_implementation",
                                         "use_cache",
                                         "bos_token_id",
                                         "eos_token_id",
                                         "pad_token_id",
                                         "pretraining_tp",
                                         "projection_dim",
                                         "image_seq_length",
                                         "return_dict",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "ignore_index",
                                         "id2label",
                                         "label2id",
                                         "chunk_size_feed_forward",
                                         "is_encoder_decoder",
                                         "problem_type",
                                         "vocab_size_hint",
                                         "_commit_hash"};

// Reads one object of the configuration and remembers which keys were asked for.
class Section {
 public:
  Section(const Json& json, std::string origin) : json_(json), origin_(std::move(origin)) {
    if (!json.is_object()) throw bad("is not a map of keys");
  }

  bool has(const char* key) {
    known_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null();
  }
  const Json& at(const char* key) const { return json_.at(key); }

  void integer(const char* key, int64_t* value, int64_t least, int64_t most) {
    if (!has(key)) return;
    if (!at(key).is_number_integer())
      throw bad(std::string(key) + " is not a whole number: " + at(key).dump());
    *value = at(key).get<int64_t>();
    if (*value < least || *value > most)
      throw bad(std::string(key) + " is " + std::to_string(*value) + "; it must be from " +
                std::to_string(least) + " to " + std::to_string(most));
  }
  void number(const char* key, double* value) {
    if (!has(key)) return;
    if (!at(key).is_number()) throw bad(std::string(key) + " is not a number: " + at(key).dump());
    *value = at(key).get<double>();
  }
  void boolean(const char* key, bool* value) {
    if (!has(key)) return;
    if (!at(key).is_boolean()) throw bad(std::string(key) + " is neither true nor false: " + at(key).dump());
    *value = at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if (!at(key).is_string()) throw bad(std::string(key) + " is not a text: " + at(key).dump());
    return at(key).get<std::string>();
  }
  // A key that may only have the value that changes nothing.
  void only(const char* key, const Json& accepted) {
    if (!has(key) || at(key) == accepted) return;
    if (at(key).is_number() && accepted.is_number() && at(key).get<double>() == accepted.get<double>())
      return;
    throw bad(std::string(key) + ": " + at(key).dump() + " is not supported (only " + accepted.dump() + ")");
  }
  Activation activation(const char* key, Activation otherwise, std::initializer_list<Activation> supported) {
    if (!has(key)) return otherwise;
    std::string name = text(key, "");
    Activation found;
    if (name == "quick_gelu")
      found = Activation::kQuickGelu;
    else if (name == "gelu")
      found = Activation::kGelu;
    else if (name == "silu" || name == "swish")
      found = Activation::kSilu;
    else
      throw bad(std::string(key) + ": activation '" + name + "' is not supported");
    if (std::find(supported.begin(), supported.end(), found) == supported.end())
      throw bad(std::string(key) + ": activation '" + name + "' is not supported here");
    return found;
  }

  // Call last: in strict mode, whatever was never asked for is an error.
  void finish(bool strict) const {
    if (!strict) return;
    for (const auto& [key, value] : json_.items()) {
      if (known_.count(key) || kHarmless.count(key)) continue;
      const std::string nearest = nearest_name(key, {known_.begin(), known_.end()});
      throw bad("unknown key '" + key + "'", nearest.empty() ? "" : "did you mean '" + nearest + "'?");
    }
  }

  Error bad(const std::string& what, const std::string& hint = "") const {
    return Error("this model configuration cannot be used", origin_ + ": " + what, hint, ExitCode::kBadUsage);
  }

 private:
  const Json& json_;
  std::string origin_;
  std::set<std::string> known_;
};

constexpr int64_t kLargest = int64_t{1} << 31;

ClipVisionConfig parse_vision(const Json& json, const std::string& origin, bool strict) {
  Section s(json, origin);
  ClipVisionConfig c;
  std::string type = s.text("model_type", "clip_vision_model");
  if (type != "clip_vision_model")
    throw s.bad("model_type: '" + type + "' is not supported",
                "the vision tower of this family is clip_vision_model");
  s.integer("hidden_size", &c.hidden_size, 1, kLargest);
  s.integer("intermediate_size", &c.intermediate_size, 1, kLargest);
  s.integer("num_hidden_layers", &c.num_hidden_layers, 1, 4096);
  s.integer("num_attention_heads", &c.num_attention_heads, 1, kLargest);
  s.integer("num_channels", &c.num_channels, 1, 1024);
  s.integer("image_size", &c.image_size, 1, 65536);
  s.integer("patch_size", &c.patch_size, 1, 65536);
  s.number("layer_norm_eps", &c.layer_norm_eps);
  s.number("initializer_range", &c.initializer_range);
  s.number("initializer_factor", &c.initializer_factor);
  c.hidden_act =
      s.activation("hidden_act", Activation::kQuickGelu, {Activation::kQuickGelu, Activation::kGelu});
  s.only("attention_dropout", 0.0);
  s.only("dropout", 0.0);
  s.has("vocab_size");  // written by some configurations, without meaning here
  s.finish(strict);
  if (c.hidden_size % c.num_attention_heads != 0)
    throw s.bad("hidden_size is not a multiple of num_attention_heads");
  if (c.patch_size > c.image_size) throw s.bad("patch_size is larger than image_size");
  return c;
}

// transformers 4 has rope_theta beside rope_scaling {type | rope_type, factor, …}; 5 has all in
// rope_parameters.
RopeConfig parse_rope(Section& text, const Json& json, const std::string& origin, bool strict) {
  RopeConfig rope;
  text.number("rope_theta", &rope.theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!text.has(key)) continue;
    Section s(json.at(key), origin + "." + key);
    rope.type = s.text("rope_type", s.text("type", "default"));
    s.number("rope_theta", &rope.theta);
    if (rope.type == "linear" || rope.type == "llama3") {
      if (!s.has("factor")) throw s.bad("no factor");
      s.number("factor", &rope.factor);
    }
    if (rope.type == "llama3") {
      for (const char* needed : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
        if (!s.has(needed)) throw s.bad(std::string("no ") + needed);
      s.number("low_freq_factor", &rope.low_freq_factor);
      s.number("high_freq_factor", &rope.high_freq_factor);
      s.integer("original_max_position_embeddings", &rope.original_max_position_embeddings, 1, kLargest);
    } else if (rope.type != "default" && rope.type != "linear") {
      throw s.bad("rope_type: '" + rope.type + "' is not supported", "default, linear and llama3 are");
    }
    s.only("partial_rotary_factor", 1.0);
    s.has("factor"), s.has("low_freq_factor"), s.has("high_freq_factor"),
        s.has("original_max_position_embeddings");
    s.finish(strict);
    if (rope.factor <= 0) throw s.bad("factor is not positive");
  }
  text.only("partial_rotary_factor", 1.0);
  if (rope.theta <= 0) throw text.bad("rope_theta is not positive");
  return rope;
}

LlamaConfig parse_text(const Json& json, const std::string& origin, bool strict) {
  Section s(json, origin);
  LlamaConfig c;
  std::string type = s.text("model_type", "llama");
  if (type != "llama")
    throw s.bad("model_type: '" + type + "' is not supported", "the decoder of this family is llama");
  s.integer("vocab_size", &c.vocab_size, 1, kLargest);
  s.integer("hidden_size", &c.hidden_size, 1, kLargest);
  s.integer("intermediate_size", &c.intermediate_size, 1, kLargest);
  s.integer("num_hidden_layers", &c.num_hidden_layers, 1, 4096);
  s.integer("num_attention_heads", &c.num_attention_heads, 1, kLargest);
  c.num_key_value_heads = c.num_attention_heads;
  s.integer("num_key_value_heads", &c.num_key_value_heads, 1, kLargest);
  c.head_dim = 0;
  s.integer("head_dim", &c.head_dim, 1, 65536);
  if (c.head_dim == 0) {  // absent or null
    if (c.hidden_size % c.num_attention_heads != 0)
      throw s.bad("hidden_size is not a multiple of num_attention_heads, and there is no head_dim");
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  s.integer("max_position_embeddings", &c.max_position_embeddings, 1, kLargest);
  s.number("rms_norm_eps", &c.rms_norm_eps);
  s.number("initializer_range", &c.initializer_range);
  s.boolean("tie_word_embeddings", &c.tie_word_embeddings);
  s.boolean("attention_bias", &c.attention_bias);
  s.boolean("mlp_bias", &c.mlp_bias);
  s.activation("hidden_act", Activation::kSilu, {Activation::kSilu});
  s.only("attention_dropout", 0.0);
  s.only("sliding_window", nullptr);
  c.rope = parse_rope(s, json, origin, strict);
  s.finish(strict);
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    throw s.bad("num_attention_heads is not a multiple of num_key_value_heads");
  if (c.head_dim % 2 != 0) throw s.bad("head_dim is odd; rotary embedding turns pairs");
  return c;
}

AudioConfig parse_audio(const Json& json, const std::string& origin, bool strict) {
  Section s(json, origin);
  AudioConfig c;
  const std::string type = s.text("model_type", "qwen2_audio_encoder");
  if (type != "qwen2_audio_encoder")
    throw s.bad("model_type: '" + type + "' is not supported",
                "the audio encoder of this family is qwen2_audio_encoder (Whisper's encoder, pooled by two)");
  s.integer("num_mel_bins", &c.num_mel_bins, 1, 65536);
  s.integer("d_model", &c.d_model, 4, kLargest);
  s.integer("encoder_layers", &c.encoder_layers, 1, 4096);
  s.integer("encoder_attention_heads", &c.encoder_attention_heads, 1, kLargest);
  s.integer("encoder_ffn_dim", &c.encoder_ffn_dim, 1, kLargest);
  s.integer("max_source_positions", &c.max_source_positions, 2, 1 << 20);
  s.number("initializer_range", &c.initializer_range);
  s.activation("activation_function", Activation::kGelu, {Activation::kGelu});
  for (const char* rate : {"dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop"}) s.only(rate, 0.0);
  s.only("scale_embedding", false);
  // Other names of sizes above, which transformers writes in addition.
  for (const char* repeated : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) s.has(repeated);
  s.finish(strict);
  if (c.d_model % c.encoder_attention_heads != 0) throw s.bad("d_model is not a multiple of encoder_attention_heads");
  if (c.d_model % 2 != 0) throw s.bad("d_model is odd; sinusoidal positions are pairs");
  return c;
}

Json parse_json(const std::string& text, const std::string& origin) {
  try {
    return parse_shallow_json<Json>(text);
  } catch (const Json::exception& e) {
    throw Error("this model configuration cannot be used", origin + " is not JSON: " + e.what(), "",
                ExitCode::kBadUsage);
  }
}

const char* name_of(Activation activation) {
  return activation == Activation::kQuickGelu ? "quick_gelu"
         : activation == Activation::kGelu    ? "gelu"
                                              : "silu";
}

// Sound where there is an audio_config, video where there is a token for it.
void parse_other_modalities(Section& s, const std::string& origin, bool strict, LlavaConfig* c) {
  auto token = [&](const std::string& medium, int64_t* id) {
    const std::string index = medium + "_token_index", newer = medium + "_token_id";
    if (s.has(newer.c_str())) s.integer(newer.c_str(), id, 0, kLargest);
    s.integer(index.c_str(), id, 0, kLargest);  // wins, as image_token_index does
    if (*id >= c->text.vocab_size)
      throw s.bad(index + " " + std::to_string(*id) + " is not below vocab_size " + std::to_string(c->text.vocab_size),
                  "set model." + index + ", or raise model.text.vocab_size");
    if (*id == c->image_token_index) throw s.bad(index + " " + std::to_string(*id) + " is the image token");
  };
  if (s.has("audio_config")) {
    c->audio = parse_audio(s.at("audio_config"), origin + ": audio_config", strict);
    token("audio", &c->audio_token_index);
    if (c->audio_token_index < 0)
      throw s.bad("audio_config without audio_token_index",
                  "set model.audio_token_index to the token that stands for a sound");
  } else if (strict && (s.has("audio_token_index") || s.has("audio_token_id"))) {
    throw s.bad("audio_token_index without audio_config", "give the sizes of the encoder in model.audio");
  }
  VideoConfig video;
  s.integer("video_frames", &video.frames, 1, 65536);
  s.integer("spatial_pool_stride", &video.pool, 1, 65536);
  const bool described = s.has("video_frames") || (strict && s.has("spatial_pool_stride"));
  token("video", &c->video_token_index);
  if (c->video_token_index < 0) {
    if (described)
      throw s.bad("video without video_token_index", "set model.video_token_index to the token that stands for a video");
    return;
  }
  s.only("spatial_pool_mode", "average");
  if (c->video_token_index == c->audio_token_index)
    throw s.bad("video_token_index " + std::to_string(c->video_token_index) + " is the audio token");
  c->video = video;
  if (c->positions_per_frame() == 0)
    throw s.bad("spatial_pool_stride " + std::to_string(video.pool) + " is more than the " +
                    std::to_string(c->vision.image_size / c->vision.patch_size) + " patches of a side",
                "lower model.video.pool");
}

}  // namespace

std::vector<int64_t> LlavaConfig::feature_states() const {
  std::vector<int64_t> states;
  for (int64_t layer : vision_feature_layers)
    states.push_back(layer < 0 ? vision.num_hidden_layers + 1 + layer : layer);
  return states;
}

int64_t LlavaConfig::vision_layers_run() const {
  std::vector<int64_t> states = feature_states();
  return *std::max_element(states.begin(), states.end());
}

LlavaConfig parse_llava_config(const std::string& json_text, const std::string& origin, bool strict) {
  const Json json = parse_json(json_text, origin);
  Section s(json, origin);
  LlavaConfig c;
  std::string type = s.text("model_type", "llava");
  if (type != "llava") throw s.bad("model_type: '" + type + "' is not supported", "this family is llava");
  s.only("quantization_config", nullptr);
  if (s.has("vision_config"))
    c.vision = parse_vision(s.at("vision_config"), origin + ": vision_config", strict);
  else
    throw s.bad("no vision_config");
  if (s.has("text_config"))
    c.text = parse_text(s.at("text_config"), origin + ": text_config", strict);
  else
    throw s.bad("no text_config");
  s.integer("image_token_index", &c.image_token_index, 0, kLargest);
  if (s.has("image_token_id")) {
    // The newer name of the same thing; image_token_index wins, since that is what our configuration
    // overrides.
    s.integer("image_token_id", &c.image_token_index, 0, kLargest);
    s.integer("image_token_index", &c.image_token_index, 0, kLargest);
  }
  if (c.image_token_index >= c.text.vocab_size)
    throw s.bad("image_token_index " + std::to_string(c.image_token_index) + " is not below vocab_size " +
                std::to_string(c.text.vocab_size),
                "set model.image_token_index to the token that stands for an image, or raise model.text.vocab_size");
  parse_other_modalities(s, origin, strict, &c);
  if (s.has("vision_feature_layer")) {
    const Json& layer = s.at("vision_feature_layer");
    c.vision_feature_layers.clear();
    for (const Json& item : layer.is_array() ? layer : Json::array({layer})) {
      if (!item.is_number_integer())
        throw s.bad("vision_feature_layer is neither a whole number nor a list of them");
      c.vision_feature_layers.push_back(item.get<int64_t>());
    }
    if (c.vision_feature_layers.empty()) throw s.bad("vision_feature_layer is an empty list");
  }
  for (int64_t state : c.feature_states())
    if (state < 0 || state > c.vision.num_hidden_layers)
      throw s.bad("vision_feature_layer is outside the vision tower");
  std::string strategy = s.text("vision_feature_select_strategy", "default");
  if (strategy != "default" && strategy != "full")
    throw s.bad("vision_feature_select_strategy: '" + strategy + "' is not supported",
                "default and full are");
  c.keep_class_token = strategy == "full";
  c.projector_hidden_act =
      s.activation("projector_hidden_act", Activation::kGelu, {Activation::kGelu, Activation::kQuickGelu});
  s.boolean("multimodal_projector_bias", &c.projector_bias);
  bool tied = false;
  s.boolean("tie_word_embeddings", &tied);
  c.text.tie_word_embeddings |= tied;  // as transformers 5 does
  s.has("vocab_size");                 // old files repeat the decoder's
  s.finish(strict);
  return c;
}

LlavaConfig read_llava_config(const std::filesystem::path& model_folder) {
  const std::filesystem::path path = model_folder / "config.json";
  return parse_llava_config(read_file(path, 64 << 20), path.string());
}

std::string exported_config(const LlavaConfig& c, const std::string& original_json) {
  Json json = original_json.empty() ? Json::object() : parse_json(original_json, "config.json");
  auto section = [&](const char* key) -> Json& {
    if (!json.contains(key) || !json[key].is_object()) json[key] = Json::object();
    Json& part = json[key];
    for (const char* old : {"dtype", "torch_dtype", "_name_or_path"}) part.erase(old);
    return part;
  };
  Json& vision = section("vision_config");
  vision["model_type"] = "clip_vision_model";
  vision["hidden_size"] = c.vision.hidden_size;
  vision["intermediate_size"] = c.vision.intermediate_size;
  vision["num_hidden_layers"] = c.vision.num_hidden_layers;
  vision["num_attention_heads"] = c.vision.num_attention_heads;
  vision["num_channels"] = c.vision.num_channels;
  vision["image_size"] = c.vision.image_size;
  vision["patch_size"] = c.vision.patch_size;
  vision["hidden_act"] = name_of(c.vision.hidden_act);
  vision["layer_norm_eps"] = c.vision.layer_norm_eps;
  if (c.audio) {
    Json& audio = section("audio_config");
    audio["model_type"] = "qwen2_audio_encoder";
    audio["num_mel_bins"] = c.audio->num_mel_bins;
    audio["d_model"] = c.audio->d_model;
    audio["encoder_layers"] = c.audio->encoder_layers;
    audio["encoder_attention_heads"] = c.audio->encoder_attention_heads;
    audio["encoder_ffn_dim"] = c.audio->encoder_ffn_dim;
    audio["max_source_positions"] = c.audio->max_source_positions;
    audio["activation_function"] = "gelu";
    audio["scale_embedding"] = false;
    json["audio_token_index"] = c.audio_token_index;
  }
  if (c.video) {
    json["video_token_index"] = c.video_token_index;
    json["video_frames"] = c.video->frames;
    json["spatial_pool_stride"] = c.video->pool;
    json["spatial_pool_mode"] = "average";
  }
  Json& text = section("text_config");
  text["model_type"] = "llama";
  text["architectures"] = {"LlamaForCausalLM"};
  text["vocab_size"] = c.text.vocab_size;
  text["hidden_size"] = c.text.hidden_size;
  text["intermediate_size"] = c.text.intermediate_size;
  text["num_hidden_layers"] = c.text.num_hidden_layers;
  text["num_attention_heads"] = c.text.num_attention_heads;
  text["num_key_value_heads"] = c.text.num_key_value_heads;
  text["head_dim"] = c.text.head_dim;
  text["max_position_embeddings"] = c.text.max_position_embeddings;
  text["rms_norm_eps"] = c.text.rms_norm_eps;
  text["hidden_act"] = "silu";
  text["attention_bias"] = c.text.attention_bias;
  text["mlp_bias"] = c.text.mlp_bias;
  text["tie_word_embeddings"] = c.text.tie_word_embeddings;
  text.erase("rope_parameters");
  text["rope_theta"] = c.text.rope.theta;
  if (c.text.rope.type == "default") {
    text["rope_scaling"] = nullptr;
  } else {
    text["rope_scaling"] = {{"rope_type", c.text.rope.type}, {"factor", c.text.rope.factor}};
    if (c.text.rope.type == "llama3") {
      text["rope_scaling"]["low_freq_factor"] = c.text.rope.low_freq_factor;
      text["rope_scaling"]["high_freq_factor"] = c.text.rope.high_freq_factor;
      text["rope_scaling"]["original_max_position_embeddings"] = c.text.rope.original_max_position_embeddings;
    }
  }
  for (const char* old : {"dtype", "_name_or_path", "image_token_id", "video_token_id", "audio_token_id", "transformers_version",
                          "family"})
    json.erase(old);
  json["architectures"] = {"LlavaForConditionalGeneration"};
  json["model_type"] = "llava";
  json["torch_dtype"] = "float32";
  json["image_token_index"] = c.image_token_index;
  json["image_seq_length"] = c.positions_per_image();
  json["projector_hidden_act"] = name_of(c.projector_hidden_act);
  json["multimodal_projector_bias"] = c.projector_bias;
  json["vision_feature_select_strategy"] = c.keep_class_token ? "full" : "default";
  if (c.vision_feature_layers.size() == 1)
    json["vision_feature_layer"] = c.vision_feature_layers[0];
  else
    json["vision_feature_layer"] = c.vision_feature_layers;
  json["tie_word_embeddings"] = c.text.tie_word_embeddings;
  return json.dump(2) + "\n";
}

}  // namespace mso
