#include "model/hf_export.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/partial_folder.h"
#include "model/hf_config.h"
#include "model/parameters.h"

namespace mso {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json parse(const std::string& text, const char* what) {
  if (text.empty()) return Json::object();
  try {
    Json json = parse_shallow_json<Json>(text);
    if (json.is_object()) return json;
  } catch (const Json::exception&) {
  }
  throw Error("cannot export", std::string(what) + " is not a JSON object",
              "the snapshot's record is damaged; take another one");
}

// Every parameter once, with its shape and a type that transformers loads.
void check_tensors(const LlavaConfig& config, const std::vector<SafetensorsItem>& tensors) {
  std::map<std::string, const SafetensorsItem*> given;
  for (const SafetensorsItem& item : tensors)
    if (!given.emplace(item.name, &item).second)
      throw Error("cannot export", "weight " + item.name + " is given twice");
  for (const ParameterSpec& spec : llava_parameters(config)) {
    auto it = given.find(spec.name);
    if (it == given.end())
      throw Error("cannot export", "weight " + spec.name + " is missing",
                  "config and weights belong to different models");
    if (it->second->shape != spec.shape)
      throw Error("cannot export", "weight " + spec.name + " has another shape than the model",
                  "config and weights belong to different models");
    given.erase(it);
  }
  if (!given.empty())
    throw Error("cannot export", "weight " + given.begin()->first + " is not part of the model",
                "config and weights belong to different models");
}

// The text of a special token, which files write as a text or as an object.
std::string token_text(const Json& tokenizer_config, const char* key) {
  auto it = tokenizer_config.find(key);
  if (it == tokenizer_config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  return it->is_object() ? it->value("content", "") : "";
}

struct SpecialTokens {
  std::map<std::string, std::string> texts;  // "bos_token" → "<bos>"
  std::map<std::string, int64_t> ids;        // "bos_token_id" → 257
  std::string image;
};

SpecialTokens special_tokens(const Json& tokenizer, const Json& tokenizer_config, int64_t image_id) {
  std::map<std::string, int64_t> added;
  SpecialTokens result;
  for (const Json& token : tokenizer.value("added_tokens", Json::array())) {
    if (!token.is_object() || !token.contains("id") || !token.contains("content")) continue;
    added[token.at("content").get<std::string>()] = token.at("id").get<int64_t>();
    if (token.at("id") == image_id) result.image = token.at("content").get<std::string>();
  }
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string text = token_text(tokenizer_config, name);
    if (text.empty()) continue;
    result.texts[name] = text;
    if (auto it = added.find(text); it != added.end()) result.ids[std::string(name) + "_id"] = it->second;
  }
  return result;
}

void write_json(const fs::path& path, const Json& json) {
  write_file_durably(path, json.dump(2) + "\n");
}

void write_tokenizer(const fs::path& folder, const HuggingFaceExport& model, Json tokenizer_config,
                     const SpecialTokens& special) {
  write_file_durably(folder / "tokenizer.json", model.tokenizer_json);
  // The generic class reads everything from tokenizer.json; a family's class would rebuild parts of it.
  tokenizer_config["tokenizer_class"] = "PreTrainedTokenizerFast";
  tokenizer_config["processor_class"] = "LlavaProcessor";
  for (const char* gone : {"auto_map", "name_or_path", "tokenizer_file", "added_tokens_decoder"})
    tokenizer_config.erase(gone);
  if (!model.chat_templates.empty()) tokenizer_config.erase("chat_template");
  Json map = Json::object();
  for (const auto& [name, text] : special.texts) map[name] = text;
  if (!special.image.empty()) {
    tokenizer_config["image_token"] = special.image;
    tokenizer_config["extra_special_tokens"] = {{"image_token", special.image}};
    map["image_token"] = special.image;
  }
  write_json(folder / "tokenizer_config.json", tokenizer_config);
  write_json(folder / "special_tokens_map.json", map);
}

// As transformers writes them since 4.52; a template in tokenizer_config.json beside these would be a second word.
void write_chat_templates(const fs::path& folder, const std::map<std::string, std::string>& templates) {
  for (const auto& [name, source] : templates) {
    if (name == "default") {
      write_file_durably(folder / "chat_template.jinja", source);
      continue;
    }
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos) continue;
    make_folders(folder / "additional_chat_templates");
    write_file_durably(folder / "additional_chat_templates" / (name + ".jinja"), source);
  }
}

bool is_export_file(const std::string& name) {
  if (name == "additional_chat_templates") return true;
  for (const char* kind : {".json", ".jinja", ".safetensors", ".safetensors.index.json"})
    if (name.ends_with(kind) || name.find(std::string(kind) + ".tmp") != std::string::npos) return true;
  return false;
}

}  // namespace

void export_hugging_face(const fs::path& folder, const HuggingFaceExport& model) {
  const LlavaConfig config = parse_llava_config(model.config_json, "config.json");
  check_tensors(config, model.tensors);
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    throw Error("cannot export", folder.string() + " exists and is not an empty folder",
                "give another folder, or remove it", ExitCode::kBadUsage);

  const Json tokenizer = parse(model.tokenizer_json, "tokenizer.json");
  const Json tokenizer_config = parse(model.tokenizer_config_json, "tokenizer_config.json");
  const SpecialTokens special = special_tokens(tokenizer, tokenizer_config, config.image_token_index);
  if (!model.tokenizer_json.empty() && special.image.empty())
    throw Error("cannot export",
                "tokenizer.json has no added token with id " + std::to_string(config.image_token_index),
                "model.image_token_index must name the image token of the tokenizer");

  Json json = Json::parse(exported_config(config, model.config_json));
  Json generation = parse(model.generation_json, "generation_config.json");
  if (generation.empty()) generation["_from_model_config"] = true;
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (auto it = special.ids.find(name); it != special.ids.end()) {
      json["text_config"][name] = it->second;
      json.erase(name);  // transformers reads the decoder's
    }
    if (!generation.contains(name) && json["text_config"].contains(name) && !json["text_config"][name].is_null())
      generation[name] = json["text_config"][name];
  }
  if (!model.tensors.empty() && model.tensors[0].dtype == DType::kBF16) json["torch_dtype"] = "bfloat16";

  PartialFolder partial(folder, is_export_file);
  const fs::path& beside = partial.path();
  write_json(beside / "config.json", json);
  write_json(beside / "generation_config.json", generation);
  write_safetensors_folder(beside, model.tensors, model.shard_bytes);
  if (!model.tokenizer_json.empty()) write_tokenizer(beside, model, tokenizer_config, special);
  write_chat_templates(beside, model.chat_templates);
  if (!model.preprocessor_json.empty()) {
    Json preprocessor = parse(model.preprocessor_json, "preprocessor_config.json");
    preprocessor["processor_class"] = "LlavaProcessor";
    write_json(beside / "preprocessor_config.json", preprocessor);
    // One class token, which LlavaProcessor takes off again for the strategy "default".
    Json processor = {{"processor_class", "LlavaProcessor"},
                      {"patch_size", config.vision.patch_size},
                      {"num_additional_image_tokens", 1},
                      {"vision_feature_select_strategy", config.keep_class_token ? "full" : "default"}};
    if (!special.image.empty()) processor["image_token"] = special.image;
    write_json(beside / "processor_config.json", processor);
  }
  partial.publish();
}

}  // namespace mso
