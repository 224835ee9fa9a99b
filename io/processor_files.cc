#include "io/processor_files.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

namespace mso {
namespace {

using Json = nlohmann::json;

ProcessorFiles::Part read_part(const std::filesystem::path& path) {
  ProcessorFiles::Part part;
  if (!std::filesystem::exists(path)) return part;
  part.origin = path.string();
  try {
    part.json = parse_shallow_json<Json>(read_file(path, 1 << 26));
  } catch (const Json::exception& e) {
    throw Error(std::string("not valid JSON (") + e.what() + ")", part.origin, "", ExitCode::kBadUsage);
  }
  if (!part.json.is_object()) throw Error("a JSON object is expected", part.origin, "", ExitCode::kBadUsage);
  return part;
}

bool has_nested(const ProcessorFiles::Part& processor, const char* key) {
  const auto it = processor.json.find(key);
  return it != processor.json.end() && it->is_object();
}

struct Name {
  const char* name;
  const char* family;
};

constexpr Name kProcessors[] = {
    {"CLIPProcessor", "clip"},
    {"SiglipProcessor", "siglip"},
    {"LlavaProcessor", "llava"},
    {"LlavaNextProcessor", "llava_next"},
    {"LlavaNextVideoProcessor", "llava_next_video"},
    {"LlavaOnevisionProcessor", "llava_onevision"},
    {"Qwen2VLProcessor", "qwen2_vl"},
    {"Qwen2_5_VLProcessor", "qwen2_5_vl"},
    {"InternVLProcessor", "internvl"},
    {"FuyuProcessor", "fuyu"},
    {"Qwen2AudioProcessor", "qwen2_audio"},
    {"WhisperProcessor", "whisper"},
};

constexpr Name kModels[] = {
    {"clip", "clip"},
    {"clip_vision_model", "clip"},
    {"siglip", "siglip"},
    {"siglip_vision_model", "siglip"},
    {"vit", "vit"},
    {"llava", "llava"},
    {"llava_next", "llava_next"},
    {"llava_next_video", "llava_next_video"},
    {"llava_onevision", "llava_onevision"},
    {"qwen2_vl", "qwen2_vl"},
    {"qwen2_5_vl", "qwen2_5_vl"},
    {"internvl", "internvl"},
    {"fuyu", "fuyu"},
    {"qwen2_audio", "qwen2_audio"},
    {"whisper", "whisper"},
};

constexpr Name kPreprocessors[] = {
    {"CLIPImageProcessor", "clip"},
    {"CLIPFeatureExtractor", "clip"},
    {"SiglipImageProcessor", "siglip"},
    {"ViTImageProcessor", "vit"},
    {"LlavaImageProcessor", "llava"},
    {"LlavaNextImageProcessor", "llava_next"},
    {"LlavaOnevisionImageProcessor", "llava_onevision"},
    {"Qwen2VLImageProcessor", "qwen2_vl"},
    {"FuyuImageProcessor", "fuyu"},
    {"WhisperFeatureExtractor", "whisper"},
};

template <size_t n>
std::string look_up(const Name (&names)[n], const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return "";
  std::string name = it->get<std::string>();
  for (const std::string_view suffix : {"Fast", "Pil"})
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  for (const Name& known : names)
    if (name == known.name) return known.family;
  return "";
}

[[noreturn]] void not_known(const std::string& what, const std::string& where) {
  std::string known;
  for (const Name& name : kProcessors) known += (known.empty() ? "" : ", ") + std::string(name.family);
  throw Error("no processor for this model family: " + what, where, "there are " + known,
              ExitCode::kBadUsage);
}

// A class that is named decides, known or not: other families use known image processors with rules of their
// own.
std::string family_of(const ProcessorFiles& files) {
  for (const auto* part : {&files.processor, &files.image, &files.tokenizer}) {
    const auto it = part->json.find("processor_class");
    if (it == part->json.end() || !it->is_string()) continue;
    if (std::string found = look_up(kProcessors, part->json, "processor_class"); !found.empty()) return found;
    not_known("processor_class is " + it->dump(), part->origin);
  }
  if (std::string found = look_up(kModels, files.model.json, "model_type"); !found.empty()) return found;
  for (const char* key : {"image_processor_type", "feature_extractor_type"})
    if (std::string found = look_up(kPreprocessors, files.image.json, key); !found.empty()) return found;
  const auto it = files.model.json.find("model_type");
  if (it != files.model.json.end()) not_known("model_type is " + it->dump(), files.model.origin);
  not_known("neither processor_class nor model_type is given", files.folder.string());
}

}  // namespace

void ProcessorFiles::require_image_processor() const {
  if (!image.found())
    throw Error("the folder has no image processor", folder.string(),
                "preprocessor_config.json or processor_config.json describes it", ExitCode::kBadUsage);
}

std::string ProcessorFiles::special_token(const std::string& name, const std::string& otherwise) const {
  auto text = [](const Json& object, const std::string& key) -> std::string {
    const auto it = object.find(key);
    if (it == object.end()) return "";
    if (it->is_string()) return it->get<std::string>();
    if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
      return (*it)["content"].get<std::string>();
    return "";
  };
  if (std::string found = text(tokenizer.json, name); !found.empty()) return found;
  for (const char* nest : {"extra_special_tokens", "model_specific_special_tokens"})
    if (const auto it = tokenizer.json.find(nest); it != tokenizer.json.end() && it->is_object())
      if (std::string found = text(*it, name); !found.empty()) return found;
  if (std::string found = text(processor.json, name); !found.empty()) return found;
  return otherwise;
}

ProcessorFiles read_processor_files(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw Error("no such folder", folder.string(), "give a Hugging Face model folder", ExitCode::kBadUsage);
  ProcessorFiles files;
  files.folder = folder;
  files.processor = read_part(folder / "processor_config.json");
  files.model = read_part(folder / "config.json");
  files.tokenizer = read_part(folder / "tokenizer_config.json");
  if (has_nested(files.processor, "image_processor"))
    files.image = {files.processor.json["image_processor"], files.processor.origin};
  else
    files.image = read_part(folder / "preprocessor_config.json");
  if (has_nested(files.processor, "video_processor"))
    files.video = {files.processor.json["video_processor"], files.processor.origin};
  else
    files.video = read_part(folder / "video_preprocessor_config.json");
  if (!files.video.found()) files.video = files.image;
  files.family = family_of(files);
  return files;
}

std::string to_file(const nlohmann::ordered_json& json) {
  return nlohmann::json(json).dump(2) + "\n";
}

}  // namespace mso
