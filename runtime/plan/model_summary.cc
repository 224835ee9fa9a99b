#include "plan/model_summary.h"

#include <algorithm>

#include "base/error.h"
#include "base/glob.h"

namespace mso {

using nlohmann::json;

namespace {

constexpr int64_t kMaxSize = 16'000'000;  // keeps every product below 2^63

[[noreturn]] void refuse(const std::string& key, const std::string& message) {
  throw Error("the model's configuration cannot be used", key + " " + message, "", ExitCode::kBadUsage);
}

int64_t size(const json& section, const std::string& where, const char* key, int64_t missing, int64_t min = 1,
             int64_t max = kMaxSize) {
  const auto found = section.find(key);
  if (found == section.end() || found->is_null()) return missing;
  if (!found->is_number_integer()) refuse(where + "." + key, "is " + found->dump() + ", not an integer");
  const int64_t value =
      found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX ? INT64_MAX : found->get<int64_t>();
  if (value < min || value > max)
    refuse(where + "." + key,
           "is " + found->dump() + ", not from " + std::to_string(min) + " to " + std::to_string(max));
  return value;
}

bool flag(const json& section, const std::string& where, const char* key, bool missing) {
  const auto found = section.find(key);
  if (found == section.end() || found->is_null()) return missing;
  if (!found->is_boolean()) refuse(where + "." + key, "is " + found->dump() + ", not true or false");
  return found->get<bool>();
}

json section(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return json::object();
  if (!found->is_object()) refuse(key, "is not a map");
  return *found;
}

struct Vision {
  int64_t hidden, intermediate, layers, heads, image, patch, channels, used_layers, patches;
  int64_t features;  // hidden states given to the projector, one after the other
};
struct Text {
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary;
  bool attention_bias, mlp_bias, tied;
};

Vision read_vision(const json& config) {
  // Without a vision_config at all, LlavaConfig takes CLIP ViT-L/14 at 336 pixels; with one,
  // CLIPVisionConfig's defaults fill the gaps.
  const bool given = config.contains("vision_config") && !config["vision_config"].is_null();
  const json vision = section(config, "vision_config");
  const std::string where = "vision_config";
  Vision v{};
  v.hidden = size(vision, where, "hidden_size", given ? 768 : 1024);
  v.intermediate = size(vision, where, "intermediate_size", given ? 3072 : 4096);
  v.layers = size(vision, where, "num_hidden_layers", given ? 12 : 24, 1, 10000);
  v.heads = size(vision, where, "num_attention_heads", given ? 12 : 16);
  v.image = size(vision, where, "image_size", given ? 224 : 336, 1, 65536);
  v.patch = size(vision, where, "patch_size", given ? 32 : 14, 1, 65536);
  v.channels = size(vision, where, "num_channels", 3, 1, 1024);
  if (v.hidden % v.heads) refuse(where + ".hidden_size", "is not a multiple of num_attention_heads");
  if (v.image < v.patch) refuse(where + ".image_size", "is smaller than patch_size");
  v.patches = (v.image / v.patch) * (v.image / v.patch);
  // One layer, or a list of layers whose features are concatenated.
  json wanted = config.value("vision_feature_layer", json(-2));
  if (!wanted.is_array()) wanted = json::array({wanted});
  if (wanted.empty()) refuse("config.vision_feature_layer", "is an empty list");
  for (const json& entry : wanted) {
    const int64_t layer = size({{"vision_feature_layer", entry}}, "config", "vision_feature_layer", -2,
                               -v.layers - 1, v.layers);
    v.used_layers = std::max(v.used_layers, layer < 0 ? v.layers + 1 + layer : layer);
  }
  v.features = static_cast<int64_t>(wanted.size());
  return v;
}

Text read_text(const json& config) {
  const json text = section(config, "text_config");
  const std::string where = "text_config";
  Text t{};
  t.hidden = size(text, where, "hidden_size", 4096);
  t.intermediate = size(text, where, "intermediate_size", 11008);
  t.layers = size(text, where, "num_hidden_layers", 32, 1, 10000);
  t.heads = size(text, where, "num_attention_heads", 32);
  t.kv_heads = size(text, where, "num_key_value_heads", t.heads);
  if (t.heads % t.kv_heads)
    refuse(where + ".num_attention_heads", "is not a multiple of num_key_value_heads");
  if (!text.contains("head_dim") && t.hidden % t.heads)
    refuse(where + ".hidden_size", "is not a multiple of num_attention_heads");
  t.head_dim = size(text, where, "head_dim", t.hidden / t.heads);
  t.vocabulary = size(text, where, "vocab_size", 32000);
  t.attention_bias = flag(text, where, "attention_bias", false);
  t.mlp_bias = flag(text, where, "mlp_bias", false);
  t.tied =
      flag(text, where, "tie_word_embeddings", false) || flag(config, "config", "tie_word_embeddings", false);
  return t;
}

class Builder {
 public:
  std::vector<ParameterShape> list;
  std::string stage;
  bool used = true;

  void add(const std::string& name, std::vector<int64_t> shape) {
    list.push_back({name, stage, std::move(shape), used});
  }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
  void norm(const std::string& name, int64_t width) {
    add(name + ".weight", {width});
    add(name + ".bias", {width});
  }
};

}  // namespace

int64_t ParameterShape::count() const {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

int64_t ModelSummary::parameters() const {
  int64_t sum = 0;
  for (const StageSummary& stage : stages) sum += stage.parameters;
  return sum;
}

int64_t ModelSummary::trainable_parameters() const {
  int64_t sum = 0;
  for (const StageSummary& stage : stages) sum += stage.trainable_parameters;
  return sum;
}

std::vector<ParameterShape> llava_parameter_shapes(const json& config) {
  const Vision v = read_vision(config);
  const Text t = read_text(config);
  Builder b;

  b.stage = "vision_encoder";
  const std::string vision = "vision_tower.vision_model.";
  b.add(vision + "embeddings.class_embedding", {v.hidden});
  b.add(vision + "embeddings.patch_embedding.weight", {v.hidden, v.channels, v.patch, v.patch});
  b.add(vision + "embeddings.position_embedding.weight", {v.patches + 1, v.hidden});
  b.norm(vision + "pre_layrnorm", v.hidden);
  for (int64_t i = 0; i < v.layers; ++i) {
    b.used = i < v.used_layers;
    const std::string layer = vision + "encoder.layers." + std::to_string(i) + ".";
    b.norm(layer + "layer_norm1", v.hidden);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      b.linear(layer + "self_attn." + name, v.hidden, v.hidden, true);
    b.norm(layer + "layer_norm2", v.hidden);
    b.linear(layer + "mlp.fc1", v.intermediate, v.hidden, true);
    b.linear(layer + "mlp.fc2", v.hidden, v.intermediate, true);
  }
  b.used = false;  // only CLIP's pooled output passes through it
  b.norm(vision + "post_layernorm", v.hidden);

  b.used = true;
  b.stage = "projector";
  const bool bias = flag(config, "config", "multimodal_projector_bias", true);
  b.linear("multi_modal_projector.linear_1", t.hidden, v.features * v.hidden, bias);
  b.linear("multi_modal_projector.linear_2", t.hidden, t.hidden, bias);

  b.stage = "llm_decoder";
  b.add("language_model.model.embed_tokens.weight", {t.vocabulary, t.hidden});
  for (int64_t i = 0; i < t.layers; ++i) {
    const std::string layer = "language_model.model.layers." + std::to_string(i) + ".";
    b.add(layer + "input_layernorm.weight", {t.hidden});
    b.linear(layer + "self_attn.q_proj", t.heads * t.head_dim, t.hidden, t.attention_bias);
    b.linear(layer + "self_attn.k_proj", t.kv_heads * t.head_dim, t.hidden, t.attention_bias);
    b.linear(layer + "self_attn.v_proj", t.kv_heads * t.head_dim, t.hidden, t.attention_bias);
    b.linear(layer + "self_attn.o_proj", t.hidden, t.heads * t.head_dim, t.attention_bias);
    b.add(layer + "post_attention_layernorm.weight", {t.hidden});
    b.linear(layer + "mlp.gate_proj", t.intermediate, t.hidden, t.mlp_bias);
    b.linear(layer + "mlp.up_proj", t.intermediate, t.hidden, t.mlp_bias);
    b.linear(layer + "mlp.down_proj", t.hidden, t.intermediate, t.mlp_bias);
  }
  b.add("language_model.model.norm.weight", {t.hidden});
  if (!t.tied) b.add("language_model.lm_head.weight", {t.vocabulary, t.hidden});
  return b.list;
}

ModelSummary summarise_llava(const json& config, const std::vector<std::string>& freeze) {
  const Vision v = read_vision(config);
  const Text t = read_text(config);
  const std::vector<ParameterShape> parameters = llava_parameter_shapes(config);

  ModelSummary summary;
  summary.family = "llava";
  summary.vocabulary = t.vocabulary;
  summary.image_size = v.image;
  const std::string strategy =
      config.value("vision_feature_select_strategy", json("default")) == json("full") ? "full" : "default";
  summary.image_positions = v.patches + (strategy == "full" ? 1 : 0);
  for (const char* name : {"vision_encoder", "projector", "llm_decoder"})
    summary.stages.emplace_back().name = name;

  std::vector<bool> selected(freeze.size(), false);
  double vision_flops = 0;
  for (const ParameterShape& parameter : parameters) {
    StageSummary& stage = *std::ranges::find(summary.stages, parameter.stage, &StageSummary::name);
    bool frozen = !parameter.used;
    for (size_t i = 0; i < freeze.size(); ++i) {
      if (!selects_parameter(freeze[i], parameter.stage, parameter.name)) continue;
      selected[i] = true;
      frozen = true;
    }
    stage.parameters += parameter.count();
    if (!frozen) stage.trainable_parameters += parameter.count();
    // Each weight of a matrix is one multiply-add a position; embeddings are looked up.
    const bool matrix = parameter.shape.size() >= 2 && !parameter.name.ends_with("embed_tokens.weight") &&
                        !parameter.name.ends_with("position_embedding.weight");
    if (!matrix || !parameter.used) continue;
    const double flops = 2.0 * static_cast<double>(parameter.count());
    if (parameter.stage == "vision_encoder")
      vision_flops += flops;
    else
      stage.flops_per_position += flops;
  }
  for (size_t i = 0; i < freeze.size(); ++i)
    if (!selected[i])
      throw Error(
          "model.freeze selects nothing", "\"" + freeze[i] + "\"",
          "use vision_encoder, projector, llm_decoder, or a pattern such as vision_tower.*.layers.0.*",
          ExitCode::kBadUsage);
  if (t.tied) summary.stages[2].flops_per_position += 2.0 * static_cast<double>(t.vocabulary * t.hidden);

  // Attention reads all positions of an image: two products of `hidden` for each pair.
  const int64_t inner = v.patches + 1;
  vision_flops +=
      static_cast<double>(v.used_layers) * 4.0 * static_cast<double>(inner) * static_cast<double>(v.hidden);
  const double per_position = static_cast<double>(inner) / static_cast<double>(summary.image_positions);
  summary.stages[0].flops_per_position = vision_flops * per_position;

  // What autograd keeps of a layer: inputs of norms and products, q, k, v, the attention's output, the
  // activation's input and output.
  auto ceil_to = [](double x) { return static_cast<int64_t>(x + 0.999999); };
  const int64_t vision_layer = 8 * v.hidden + 2 * v.intermediate;
  const int64_t text_layer =
      4 * t.hidden + 2 * t.heads * t.head_dim + 2 * t.kv_heads * t.head_dim + 3 * t.intermediate;
  summary.stages[0].activation_elements =
      ceil_to(static_cast<double>(v.used_layers * vision_layer + v.hidden) * per_position);
  summary.stages[0].recomputed_elements =
      ceil_to(static_cast<double>(v.used_layers * v.hidden + vision_layer) * per_position);
  summary.stages[1].activation_elements = v.features * v.hidden + 2 * t.hidden;
  summary.stages[1].recomputed_elements = summary.stages[1].activation_elements;
  // Logits and their gradient, as if every position had a label.
  const int64_t head = 2 * t.hidden + 2 * t.vocabulary;
  summary.stages[2].activation_elements = t.layers * text_layer + head;
  summary.stages[2].recomputed_elements = t.layers * t.hidden + text_layer + head;
  return summary;
}

}  // namespace mso
