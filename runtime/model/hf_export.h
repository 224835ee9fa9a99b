// Writes a model as a Hugging Face folder that transformers 4.57 and 5 load (LlavaForConditionalGeneration
// and AutoProcessor). No torch here.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/safetensors.h"

namespace mso {

struct HuggingFaceExport {
  std::string config_json;     // the model's config.json (a snapshot's record "model_config")
  std::string tokenizer_json;  // tokenizer.json as training used it; empty: no tokenizer files are written
  std::string tokenizer_config_json;     // tokenizer_config.json that goes with it, may be empty
  std::map<std::string, std::string> chat_templates;  // by name; "default": what apply_chat_template takes unasked
  std::string generation_json;           // the model's own generation_config.json; empty: made of config.json
  std::string preprocessor_json;         // preprocessor_config.json of the image processor
  std::vector<SafetensorsItem> tensors;  // every parameter under its logical name, float32 or bfloat16
  uint64_t shard_bytes = 5'000'000'000;  // larger models are split
};

// Writes config.json, generation_config.json, model.safetensors (or shards and their index), tokenizer.json,
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja, additional_chat_templates/NAME.jinja,
// preprocessor_config.json and processor_config.json into `folder`, which must not exist or be empty; it appears whole or not at all. Error when the tensors are not
// exactly the model's parameters, or the folder cannot be written.
void export_hugging_face(const std::filesystem::path& folder, const HuggingFaceExport& model);

}  // namespace mso
