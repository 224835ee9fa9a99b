#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/error.h"
#include "base/glob.h"
#include "base/hash.h"
#include "base/random.h"
#include "model/hf_names.h"

namespace mso {

namespace {

using Start = ParameterSpec::Start;

class List {
 public:
  std::vector<ParameterSpec> specs;
  std::string stage;
  bool used = true;

  void weight(const std::string& name, std::vector<int64_t> shape, double std) {
    add(name, std::move(shape), Start::kNormal, std);
  }
  void bias(const std::string& name, int64_t size) { add(name, {size}, Start::kZeros, 0); }
  void ones(const std::string& name, int64_t size) { add(name, {size}, Start::kOnes, 0); }
  void sinusoids(const std::string& name, int64_t positions, int64_t size) {
    add(name, {positions, size}, Start::kSinusoids, 0);
    specs.back().constant = true;
  }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, Start start, double std) {
    specs.push_back({name, stage, std::move(shape), start, std, used, false});
  }
};

void add_vision(List& list, const LlavaConfig& config) {
  const ClipVisionConfig& c = config.vision;
  const std::string root = "vision_tower.vision_model.";
  const int64_t h = c.hidden_size;
  // CLIPPreTrainedModel._init_weights
  const double factor = c.initializer_factor,
               depth = std::pow(2.0 * static_cast<double>(c.num_hidden_layers), -0.5);
  const double in_std = std::pow(static_cast<double>(h), -0.5) * depth * factor,
               out_std = std::pow(static_cast<double>(h), -0.5) * factor;
  const double fc_std = std::pow(2.0 * static_cast<double>(h), -0.5) * factor;
  list.stage = "vision_encoder";
  list.weight(root + "embeddings.class_embedding", {h}, out_std);
  list.weight(root + "embeddings.patch_embedding.weight", {h, c.num_channels, c.patch_size, c.patch_size},
              c.initializer_range * factor);
  list.weight(root + "embeddings.position_embedding.weight", {c.patches() + 1, h},
              c.initializer_range * factor);
  list.ones(root + "pre_layrnorm.weight", h);
  list.bias(root + "pre_layrnorm.bias", h);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    list.used = i < config.vision_layers_run();
    const std::string layer = root + "encoder.layers." + std::to_string(i) + ".";
    list.ones(layer + "layer_norm1.weight", h);
    list.bias(layer + "layer_norm1.bias", h);
    for (const char* part : {"q", "k", "v"})
      list.weight(layer + "self_attn." + part + "_proj.weight", {h, h}, in_std);
    for (const char* part : {"q", "k", "v"}) list.bias(layer + "self_attn." + part + "_proj.bias", h);
    list.weight(layer + "self_attn.out_proj.weight", {h, h}, out_std);
    list.bias(layer + "self_attn.out_proj.bias", h);
    list.ones(layer + "layer_norm2.weight", h);
    list.bias(layer + "layer_norm2.bias", h);
    list.weight(layer + "mlp.fc1.weight", {c.intermediate_size, h}, fc_std);
    list.bias(layer + "mlp.fc1.bias", c.intermediate_size);
    list.weight(layer + "mlp.fc2.weight", {h, c.intermediate_size}, in_std);
    list.bias(layer + "mlp.fc2.bias", h);
  }
  list.used = false;
  list.ones(root + "post_layernorm.weight", h);
  list.bias(root + "post_layernorm.bias", h);
  list.used = true;
}

void add_projector(List& list, const LlavaConfig& config, double std) {
  const int64_t in = config.vision.hidden_size * static_cast<int64_t>(config.vision_feature_layers.size());
  const int64_t out = config.text.hidden_size;
  list.stage = "projector";
  list.weight("multi_modal_projector.linear_1.weight", {out, in}, std);
  if (config.projector_bias) list.bias("multi_modal_projector.linear_1.bias", out);
  list.weight("multi_modal_projector.linear_2.weight", {out, out}, std);
  if (config.projector_bias) list.bias("multi_modal_projector.linear_2.bias", out);
}

// Qwen2AudioPreTrainedModel: initializer_range for every matrix, zeros and ones elsewhere.
void add_audio(List& list, const AudioConfig& c) {
  const std::string root = "audio_tower.";
  const int64_t d = c.d_model;
  const double std = c.initializer_range;
  list.stage = "audio_encoder";
  list.weight(root + "conv1.weight", {d, c.num_mel_bins, 3}, std);
  list.bias(root + "conv1.bias", d);
  list.weight(root + "conv2.weight", {d, d, 3}, std);
  list.bias(root + "conv2.bias", d);
  list.sinusoids(root + "embed_positions.weight", c.max_source_positions, d);
  for (int64_t i = 0; i < c.encoder_layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i) + ".";
    list.ones(layer + "self_attn_layer_norm.weight", d);
    list.bias(layer + "self_attn_layer_norm.bias", d);
    for (const char* part : {"q", "k", "v"}) list.weight(layer + "self_attn." + part + "_proj.weight", {d, d}, std);
    for (const char* part : {"q", "v"}) list.bias(layer + "self_attn." + part + "_proj.bias", d);
    list.weight(layer + "self_attn.out_proj.weight", {d, d}, std);
    list.bias(layer + "self_attn.out_proj.bias", d);
    list.ones(layer + "final_layer_norm.weight", d);
    list.bias(layer + "final_layer_norm.bias", d);
    list.weight(layer + "fc1.weight", {c.encoder_ffn_dim, d}, std);
    list.bias(layer + "fc1.bias", c.encoder_ffn_dim);
    list.weight(layer + "fc2.weight", {d, c.encoder_ffn_dim}, std);
    list.bias(layer + "fc2.bias", d);
  }
  list.ones(root + "layer_norm.weight", d);
  list.bias(root + "layer_norm.bias", d);
}

// Qwen2AudioMultiModalProjector; "multi_modal_projector" is the pictures'.
void add_audio_projector(List& list, const LlavaConfig& config, double std) {
  list.stage = "audio_projector";
  list.weight("audio_projector.linear.weight", {config.text.hidden_size, config.audio->d_model}, std);
  list.bias("audio_projector.linear.bias", config.text.hidden_size);
}

void add_decoder(List& list, const LlamaConfig& c, double std) {
  const std::string root = "language_model.model.";
  const int64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                kv = c.num_key_value_heads * c.head_dim;
  list.stage = "llm_decoder";
  list.weight(root + "embed_tokens.weight", {c.vocab_size, h}, std);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i) + ".";
    list.ones(layer + "input_layernorm.weight", h);
    list.weight(layer + "self_attn.q_proj.weight", {q, h}, std);
    list.weight(layer + "self_attn.k_proj.weight", {kv, h}, std);
    list.weight(layer + "self_attn.v_proj.weight", {kv, h}, std);
    if (c.attention_bias) {
      list.bias(layer + "self_attn.q_proj.bias", q);
      list.bias(layer + "self_attn.k_proj.bias", kv);
      list.bias(layer + "self_attn.v_proj.bias", kv);
    }
    list.weight(layer + "self_attn.o_proj.weight", {h, q}, std);
    if (c.attention_bias) list.bias(layer + "self_attn.o_proj.bias", h);
    list.ones(layer + "post_attention_layernorm.weight", h);
    list.weight(layer + "mlp.gate_proj.weight", {c.intermediate_size, h}, std);
    list.weight(layer + "mlp.up_proj.weight", {c.intermediate_size, h}, std);
    if (c.mlp_bias) {
      list.bias(layer + "mlp.gate_proj.bias", c.intermediate_size);
      list.bias(layer + "mlp.up_proj.bias", c.intermediate_size);
    }
    list.weight(layer + "mlp.down_proj.weight", {h, c.intermediate_size}, std);
    if (c.mlp_bias) list.bias(layer + "mlp.down_proj.bias", h);
  }
  list.ones(root + "norm.weight", h);
  if (!c.tie_word_embeddings) list.weight("language_model.lm_head.weight", {c.vocab_size, h}, std);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

std::vector<ParameterSpec> llava_parameters(const LlavaConfig& config, double init_std) {
  const double std = init_std > 0 ? init_std : config.text.initializer_range;
  List list;
  add_vision(list, config);
  add_projector(list, config, std);
  if (config.audio) {
    add_audio(list, *config.audio);
    add_audio_projector(list, config, std);
  }
  add_decoder(list, config.text, std);
  return std::move(list.specs);
}

std::vector<bool> frozen_parameters(const std::vector<ParameterSpec>& specs,
                                    const std::vector<std::string>& patterns) {
  std::vector<bool> frozen(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) frozen[i] = !specs[i].used || specs[i].constant;
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!selects_parameter(pattern, specs[i].stage, specs[i].name)) continue;
      frozen[i] = true;
      matched = true;
    }
    if (!matched)
      throw Error("nothing to freeze",
                  "model.freeze: '" + pattern + "' is neither a stage nor matches a parameter",
                  "stages: vision_encoder, projector, llm_decoder, and audio_encoder, audio_projector of a model with sound",
                  ExitCode::kBadUsage);
  }
  return frozen;
}

ParameterLayouts split_layouts(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen) {
  std::vector<FlatTensor> parts[2];
  for (size_t i = 0; i < specs.size(); ++i)
    parts[frozen[i]].push_back({specs[i].name, specs[i].stage, specs[i].shape});
  return {make_flat_layout(std::move(parts[0])), make_flat_layout(std::move(parts[1]))};
}

// sinusoids() of transformers' modeling_whisper.py: sines of all frequencies, then cosines, in float32.
static void fill_sinusoids(int64_t positions, int64_t channels, float* out) {
  const int64_t half = channels / 2;
  const float step = static_cast<float>(std::log(10000.0) / static_cast<double>(half - 1));
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t k = 0; k < half; ++k) {
      const float angle = static_cast<float>(p) * std::exp(-step * static_cast<float>(k));
      out[p * channels + k] = std::sin(angle);
      out[p * channels + half + k] = std::cos(angle);
    }
}

void initialise(const ParameterSpec& spec, uint64_t seed, float* out) {
  size_t count = 1;
  for (int64_t dim : spec.shape) count *= static_cast<size_t>(dim);
  if (spec.start == Start::kSinusoids) return fill_sinusoids(spec.shape[0], spec.shape[1], out);
  if (spec.start != Start::kNormal) {
    std::fill(out, out + count, spec.start == Start::kOnes ? 1.0f : 0.0f);
    return;
  }
  const uint64_t name = hash64(spec.name);
  for (size_t i = 0; i < count; i += 2) {
    // Box and Muller 1958: two uniforms give two normals.
    const double u = 1.0 - random_uniform({seed, name, i}), v = random_uniform({seed, name, i + 1});
    const double radius = std::sqrt(-2.0 * std::log(u)) * spec.std, angle = 2.0 * std::numbers::pi * v;
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < count) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

std::map<std::string, std::string> match_parameters(const SafetensorsFolder& folder, const ParameterLayouts& layouts,
                                                    bool tied) {
  std::map<std::string, std::string> found;  // logical name → name in the file
  for (const std::string& name : folder.names()) {
    const std::string logical = logical_name(name);
    if (is_ignorable_name(logical)) continue;
    if (tied && logical == "language_model.lm_head.weight") continue;
    auto [it, fresh] = found.emplace(logical, name);
    if (!fresh)
      throw Error("a weight is there twice",
                  name + " and " + it->second + " in " + folder.file_of(name).string(),
                  "keep one of the two spellings");
  }
  std::map<std::string, std::string> matched;
  for (const FlatLayout* layout : {&layouts.trainable, &layouts.frozen}) {
    for (const FlatTensor& tensor : layout->tensors) {
      auto it = found.find(tensor.name);
      if (it == found.end())
        throw Error("a weight is missing", tensor.name,
                    "config.json and the weights belong to different models, or a shard is missing");
      const SafetensorsEntry& entry = folder.entry(it->second);
      if (entry.shape != tensor.shape)
        throw Error("a weight has the wrong shape",
                    it->second + " in " + folder.file_of(it->second).string() + ": " +
                        shape_text(entry.shape) + ", the model needs " + shape_text(tensor.shape),
                    "config.json and the weights belong to different models");
      matched.insert(found.extract(it));
    }
  }
  if (!found.empty())
    throw Error("a weight has no place in the model",
                found.begin()->second + " in " + folder.file_of(found.begin()->second).string(),
                "this model has parts that are not supported, or config.json belongs to another model");
  return matched;
}

void load_parameters(const SafetensorsFolder& folder, const ParameterLayouts& layouts, bool tied, float* trainable,
                     float* frozen) {
  const std::map<std::string, std::string> names = match_parameters(folder, layouts, tied);
  for (auto [layout, buffer] : {std::pair(&layouts.trainable, trainable), std::pair(&layouts.frozen, frozen)})
    for (const FlatTensor& tensor : layout->tensors)
      if (buffer != nullptr) folder.read_f32(names.at(tensor.name), 0, tensor.count, buffer + tensor.offset);
}

}  // namespace mso
