// The configuration of a LLaVA model, read from a Hugging Face config.json (keys of transformers 4 and 5); for sound
// and video with the keys that Qwen2-Audio and LLaVA-NeXT-Video use for the same ("audio_config",
// "audio_token_index", "video_token_index", "spatial_pool_stride"). Plain data; what would change the maths and is not supported is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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

// The encoder of transformers' Qwen2AudioEncoderConfig, with its defaults: Whisper's with the output pooled by two.
struct AudioConfig {
  int64_t num_mel_bins = 128, d_model = 1280, encoder_layers = 32, encoder_attention_heads = 20, encoder_ffn_dim = 5120;
  int64_t max_source_positions = 1500;  // behind the two convolutions
  double initializer_range = 0.02;

  int64_t mel_frames() const { return 2 * max_source_positions; }     // of a clip, always a whole window
  int64_t positions_per_clip() const { return max_source_positions / 2; }  // of the packed sequence
};

// Video frames go through the vision tower and the projector like images, their patch grid pooled in between
// (LlavaNextVideoPooler, spatial_pool_mode "average").
struct VideoConfig {
  int64_t frames = 8;  // most of a clip; what the data pipeline samples
  int64_t pool = 2;    // patches that become one, on each side
};

struct LlavaConfig {
  ClipVisionConfig vision;
  LlamaConfig text;
  std::optional<AudioConfig> audio;  // an encoder and a linear projector, as Qwen2-Audio has them
  std::optional<VideoConfig> video;
  int64_t video_token_index = -1, audio_token_index = -1;  // with `video`, with `audio`
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
  // Positions of one frame of a video; the class token is no part of the grid and never among them.
  int64_t positions_per_frame() const {
    const int64_t side = video ? vision.image_size / vision.patch_size / video->pool : 0;
    return side * side;
  }
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
