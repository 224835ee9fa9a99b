// The configuration of a LLaVA model, read from a Hugging Face config.json (keys of transformers 4 and 5).
// Plain data; what would change the maths and is not supported is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mso {

enum class Activation { kQuickGelu, kGelu, kSilu };

// transformers' CLIPVisionConfig, with its defaults.
struct ClipVisionConfig {
  int64_t hidden_size = 768, intermediate_size = 3072, num_hidden_layers = 12, num_attention_heads = 12;
  int64_t num_channels = 3, image_size = 224, patch_size = 32;
  Activation hidden_act = Activation::kQuickGelu;
  double layer_norm_eps = 1e-5, initializer_range = 0.02, initializer_factor = 1.0;

  int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
};

// Rotary frequencies: "default", "linear" (all positions divided by factor) or "llama3" (Llama 3.1's
// scaling).
struct RopeConfig {
  std::string type = "default";
  double theta = 10000.0, factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int64_t original_max_position_embeddings = 0;          // llama3
};

// transformers' LlamaConfig, with its defaults.
struct LlamaConfig {
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32;
  int64_t num_attention_heads = 32, num_key_value_heads = 32, head_dim = 128, max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6, initializer_range = 0.02;
  bool tie_word_embeddings = false, attention_bias = false, mlp_bias = false;
  RopeConfig rope;
};

struct LlavaConfig {
  ClipVisionConfig vision;
  LlamaConfig text;
  int64_t image_token_index = 32000;
  std::vector<int64_t> vision_feature_layers{-2};  // as in the file; several are concatenated
  bool keep_class_token = false;                   // vision_feature_select_strategy "full"
  Activation projector_hidden_act = Activation::kGelu;
  bool projector_bias = true;

  // Hidden states (0 = embeddings, i = after layer i) the projector reads, and how many layers must run for
  // them.
  std::vector<int64_t> feature_states() const;
  int64_t vision_layers_run() const;
  // Positions of the packed sequence that one image fills.
  int64_t positions_per_image() const { return vision.patches() + (keep_class_token ? 1 : 0); }
};

// `json_text`: a config.json. With `strict` an unknown key is an Error naming the nearest known one (for
// configurations a person writes); else it is ignored, as transformers does. `origin` names the source in
// messages.
LlavaConfig parse_llava_config(const std::string& json_text, const std::string& origin, bool strict = false);
LlavaConfig read_llava_config(const std::filesystem::path& model_folder);

// The config.json an export writes: keys of transformers 4, which 5 reads too. Keys of `original` (may be
// empty) that we do not interpret are kept.
std::string exported_config(const LlavaConfig& config, const std::string& original_json);

}  // namespace mso
