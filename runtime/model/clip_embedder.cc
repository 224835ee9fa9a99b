#include "model/clip_embedder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/safetensors.h"
#include "model/hf_config.h"

namespace mso {
namespace {

using nlohmann::json;

// The common part of both towers.
struct TowerConfig {
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0;
  Activation activation = Activation::kQuickGelu;
  double epsilon = 1e-5;
};

struct Linear {
  at::Tensor weight, bias;  // [out, in], [out] (may be undefined)
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

struct Norm {
  at::Tensor weight, bias;
  double epsilon = 1e-5;
  at::Tensor operator()(const at::Tensor& x) const {
    return at::layer_norm(x, {weight.size(0)}, weight, bias, epsilon);
  }
};

struct Layer {
  Norm norm1, norm2;
  Linear q, k, v, out, fc1, fc2;
};

// A pre-norm transformer encoder; the text tower's attention is causal.
struct Tower {
  TowerConfig config;
  std::vector<Layer> layers;

  // [rows, positions, hidden]
  at::Tensor run(at::Tensor x, bool causal) const {
    const int64_t rows = x.size(0), positions = x.size(1), width = config.hidden / config.heads;
    auto heads = [&](const at::Tensor& t) { return t.view({rows, positions, config.heads, width}).transpose(1, 2); };
    for (const Layer& layer : layers) {
      const at::Tensor normed = layer.norm1(x);
      const at::Tensor attended = at::scaled_dot_product_attention(
          heads(layer.q(normed)), heads(layer.k(normed)), heads(layer.v(normed)), {}, 0.0, causal);
      x = x + layer.out(attended.transpose(1, 2).reshape({rows, positions, config.hidden}));
      at::Tensor inner = layer.fc1(layer.norm2(x));
      inner = config.activation == Activation::kQuickGelu ? inner * at::sigmoid(inner * 1.702) : at::gelu(inner);
      x = x + layer.fc2(inner);
    }
    return x;
  }
};

// config.json, with transformers' defaults.
struct Config {
  std::string file;
  TowerConfig text, vision;
  int64_t vocabulary = 49408, positions = 77, end_token = 49407, projection = 512;
  int64_t channels = 3, image_size = 224, patch_size = 32;

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw Error("cannot use this CLIP model", file + " at " + key + ": " + what,
                "a folder of a CLIPModel, such as openai/clip-vit-base-patch32, is wanted", ExitCode::kBadUsage);
  }
  int64_t integer(const json& from, const std::string& section, const char* key, int64_t otherwise) const {
    const auto at = from.find(key);
    if (at == from.end() || at->is_null()) return otherwise;
    if (!at->is_number_integer() || at->get<int64_t>() < 0 || at->get<int64_t>() > (int64_t{1} << 24))
      refuse(section + "." + key, "not a size");
    return at->get<int64_t>();
  }
  TowerConfig tower(const json& from, const std::string& section, TowerConfig defaults) const {
    TowerConfig t;
    t.hidden = integer(from, section, "hidden_size", defaults.hidden);
    t.intermediate = integer(from, section, "intermediate_size", defaults.intermediate);
    t.layers = integer(from, section, "num_hidden_layers", defaults.layers);
    t.heads = integer(from, section, "num_attention_heads", defaults.heads);
    if (t.heads == 0 || t.hidden == 0 || t.hidden % t.heads != 0)
      refuse(section + ".num_attention_heads", "does not divide hidden_size");
    const std::string activation = from.value("hidden_act", "quick_gelu");
    if (activation == "gelu")
      t.activation = Activation::kGelu;
    else if (activation != "quick_gelu")
      refuse(section + ".hidden_act", activation + " is not known here (quick_gelu, gelu)");
    t.epsilon = from.value("layer_norm_eps", 1e-5);
    return t;
  }

  Config(const std::string& content, const std::string& origin) : file(origin) {
    json root;
    try {
      root = parse_shallow_json(content);
      const std::string type = root.at("model_type").get<std::string>();
      if (type != "clip") refuse("model_type", type + " instead of clip");
      const json text_config = root.value("text_config", json::object()),
                 vision_config = root.value("vision_config", json::object());
      text = tower(text_config, "text_config", {512, 2048, 12, 8});
      vision = tower(vision_config, "vision_config", {768, 3072, 12, 12});
      vocabulary = integer(text_config, "text_config", "vocab_size", 49408);
      positions = integer(text_config, "text_config", "max_position_embeddings", 77);
      end_token = integer(text_config, "text_config", "eos_token_id", 49407);
      channels = integer(vision_config, "vision_config", "num_channels", 3);
      image_size = integer(vision_config, "vision_config", "image_size", 224);
      patch_size = integer(vision_config, "vision_config", "patch_size", 32);
      projection = integer(root, "", "projection_dim", 512);
    } catch (const json::exception& error) {
      refuse("/", error.what());
    }
    if (patch_size == 0 || image_size < patch_size || positions < 2) refuse("/", "impossible sizes");
  }
};

// Reads tensors, checking shapes; the names are those of transformers and of the hub.
class Weights {
 public:
  explicit Weights(const std::filesystem::path& folder) : folder_(folder), files_(folder) {}

  at::Tensor read(const std::string& name, std::vector<int64_t> shape) {
    if (!files_.contains(name))
      throw Error("the CLIP model has no such tensor", folder_.string() + ": " + name,
                  "the folder must hold a whole CLIPModel, text tower and projections included", ExitCode::kBadUsage);
    const SafetensorsEntry& entry = files_.entry(name);
    if (entry.shape != shape)
      throw Error("a tensor of the CLIP model has another shape than config.json says",
                  files_.file_of(name).string() + ": " + name, "", ExitCode::kBadUsage);
    at::Tensor tensor = at::empty(shape, at::kFloat);
    files_.read_f32(name, 0, static_cast<uint64_t>(entry.count()), tensor.data_ptr<float>());
    hash_.update(name.data(), name.size());
    hash_.update(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()) * sizeof(float));
    return tensor;
  }
  Linear linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    Linear l;
    l.weight = read(name + ".weight", {out, in});
    if (bias) l.bias = read(name + ".bias", {out});
    return l;
  }
  Norm norm(const std::string& name, const TowerConfig& config) {
    return {read(name + ".weight", {config.hidden}), read(name + ".bias", {config.hidden}), config.epsilon};
  }
  Tower tower(const std::string& root, const TowerConfig& config) {
    Tower tower;
    tower.config = config;
    const int64_t h = config.hidden;
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string name = root + ".encoder.layers." + std::to_string(i);
      Layer layer;
      layer.norm1 = norm(name + ".layer_norm1", config);
      layer.norm2 = norm(name + ".layer_norm2", config);
      layer.q = linear(name + ".self_attn.q_proj", h, h, true);
      layer.k = linear(name + ".self_attn.k_proj", h, h, true);
      layer.v = linear(name + ".self_attn.v_proj", h, h, true);
      layer.out = linear(name + ".self_attn.out_proj", h, h, true);
      layer.fc1 = linear(name + ".mlp.fc1", config.intermediate, h, true);
      layer.fc2 = linear(name + ".mlp.fc2", h, config.intermediate, true);
      tower.layers.push_back(std::move(layer));
    }
    return tower;
  }
  uint64_t hash() const { return hash_.digest(); }

 private:
  std::filesystem::path folder_;
  SafetensorsFolder files_;
  Hasher hash_;
};

std::vector<float> to_vector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const float* data = flat.data_ptr<float>();
  return {data, data + flat.numel()};
}

}  // namespace

struct ClipEmbedder::Impl {
  Config config;
  std::string fingerprint;
  Tower text, vision;
  at::Tensor token_table, text_positions;                    // [vocabulary, hidden], [positions, hidden]
  at::Tensor class_embedding, patch_weight, patch_positions;  // [hidden], [hidden, c, p, p], [patches + 1, hidden]
  Norm text_norm, pre_norm, post_norm;
  Linear text_projection, visual_projection;

  Impl(const std::string& content, const std::filesystem::path& folder)
      : config(content, (folder / "config.json").string()) {
    c10::InferenceMode inference;
    Weights weights(folder);
    const Config& c = config;
    token_table = weights.read("text_model.embeddings.token_embedding.weight", {c.vocabulary, c.text.hidden});
    text_positions = weights.read("text_model.embeddings.position_embedding.weight", {c.positions, c.text.hidden});
    text = weights.tower("text_model", c.text);
    text_norm = weights.norm("text_model.final_layer_norm", c.text);
    text_projection = weights.linear("text_projection", c.projection, c.text.hidden, false);
    const int64_t grid = c.image_size / c.patch_size;
    class_embedding = weights.read("vision_model.embeddings.class_embedding", {c.vision.hidden});
    patch_weight = weights.read("vision_model.embeddings.patch_embedding.weight",
                                {c.vision.hidden, c.channels, c.patch_size, c.patch_size});
    patch_positions = weights.read("vision_model.embeddings.position_embedding.weight", {grid * grid + 1, c.vision.hidden});
    pre_norm = weights.norm("vision_model.pre_layrnorm", c.vision);
    vision = weights.tower("vision_model", c.vision);
    post_norm = weights.norm("vision_model.post_layernorm", c.vision);
    visual_projection = weights.linear("visual_projection", c.projection, c.vision.hidden, false);
    fingerprint = hex64(hash64(content, weights.hash()));
  }
};

ClipEmbedder::ClipEmbedder(const std::filesystem::path& folder) {
  std::string content;
  try {
    content = read_file(folder / "config.json", uint64_t{16} << 20);
  } catch (const Error& error) {
    throw Error("cannot read the CLIP model", error.what(), "give a Hugging Face folder of a CLIPModel",
                ExitCode::kBadUsage);
  }
  impl_ = std::make_unique<Impl>(content, folder);
}

ClipEmbedder::~ClipEmbedder() = default;

int ClipEmbedder::image_size() const { return static_cast<int>(impl_->config.image_size); }
int ClipEmbedder::channels() const { return static_cast<int>(impl_->config.channels); }
int ClipEmbedder::projection_size() const { return static_cast<int>(impl_->config.projection); }
int64_t ClipEmbedder::vocabulary_size() const { return impl_->config.vocabulary; }
int64_t ClipEmbedder::max_text_length() const { return impl_->config.positions; }
int64_t ClipEmbedder::end_token() const { return impl_->config.end_token; }
std::string ClipEmbedder::fingerprint() const { return impl_->fingerprint; }

std::vector<float> ClipEmbedder::image_features(std::span<const float> pixels, int64_t images) const {
  const Impl& m = *impl_;
  const Config& c = m.config;
  if (static_cast<int64_t>(pixels.size()) != images * c.channels * c.image_size * c.image_size)
    throw Error("wrong number of pixels", std::to_string(pixels.size()) + " for " + std::to_string(images) + " pictures");
  if (images == 0) return {};
  c10::InferenceMode inference;
  const at::Tensor input = at::from_blob(const_cast<float*>(pixels.data()),
                                         {images, c.channels, c.image_size, c.image_size}, at::kFloat);
  // A border that fills no patch is left out, as the convolution does.
  const at::Tensor patches =
      at::conv2d(input, m.patch_weight, {}, {c.patch_size, c.patch_size}).flatten(2).transpose(1, 2);
  at::Tensor x = at::cat({m.class_embedding.expand({images, 1, c.vision.hidden}), patches}, 1) + m.patch_positions;
  x = m.vision.run(m.pre_norm(x), false);
  return to_vector(m.visual_projection(m.post_norm(x.select(1, 0))));
}

std::vector<float> ClipEmbedder::text_features(const std::vector<std::vector<int64_t>>& texts) const {
  const Impl& m = *impl_;
  const Config& c = m.config;
  if (texts.empty()) return {};
  int64_t longest = 1;
  for (const auto& text : texts) longest = std::max(longest, std::min<int64_t>(static_cast<int64_t>(text.size()), c.positions));
  const int64_t count = static_cast<int64_t>(texts.size());
  // Behind a text stands whatever: the attention is causal, so nothing there reaches the position that is read.
  std::vector<int64_t> ids(static_cast<size_t>(count * longest), 0), pooled(static_cast<size_t>(count), 0);
  for (int64_t row = 0; row < count; ++row) {
    const std::vector<int64_t>& text = texts[static_cast<size_t>(row)];
    if (text.empty()) throw Error("an empty text has no feature", "text " + std::to_string(row));
    const int64_t length = std::min<int64_t>(static_cast<int64_t>(text.size()), c.positions);
    int64_t* at = ids.data() + row * longest;
    std::copy_n(text.begin(), length, at);
    if (length < static_cast<int64_t>(text.size())) at[length - 1] = text.back();
    for (int64_t i = 0; i < length; ++i)
      if (at[i] < 0 || at[i] >= c.vocabulary)
        throw Error("a token is not in the CLIP model's vocabulary", std::to_string(at[i]),
                    "the tokenizer beside the model is another model's", ExitCode::kBadUsage);
    // Configurations of before May 2023 say 2 and mean the largest id (huggingface/transformers, modeling_clip.py).
    pooled[static_cast<size_t>(row)] = c.end_token == 2 ? std::max_element(at, at + length) - at
                                                        : std::find(at, at + length, c.end_token) - at;
    if (pooled[static_cast<size_t>(row)] == length) pooled[static_cast<size_t>(row)] = 0;  // as argmax of no match
  }
  c10::InferenceMode inference;
  const at::Tensor tokens = at::from_blob(ids.data(), {count, longest}, at::kLong);
  at::Tensor x = at::embedding(m.token_table, tokens) + m.text_positions.narrow(0, 0, longest);
  x = m.text_norm(m.text.run(x, true));
  const at::Tensor rows = at::arange(count, at::kLong), at_end = at::from_blob(pooled.data(), {count}, at::kLong);
  return to_vector(m.text_projection(at::index(x, {rows, at_end})));
}

}  // namespace mso
