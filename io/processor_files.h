// The files of a Hugging Face model folder that describe its processor, brought into one form: transformers 4
// has a file per part, transformers 5 nests the parts in processor_config.json.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/config_keys.h"

namespace mso {

struct ProcessorFiles {
  struct Part {
    nlohmann::json json = nlohmann::json::object();
    std::string origin;  // the file, for messages

    bool found() const { return !origin.empty(); }
    ConfigKeys keys(const std::string& part) const { return {json, part, origin}; }
  };

  std::filesystem::path folder;
  Part image;      // "image_processor", else preprocessor_config.json
  Part video;      // "video_processor", else video_preprocessor_config.json, else as `image`
  Part processor;  // processor_config.json
  Part model;      // config.json
  Part tokenizer;  // tokenizer_config.json
  // "llava", "qwen2_vl", …: by the processor's class, else by the model's type, else by the image
  // processor's.
  std::string family;

  // Error (kBadUsage) where `image` was not found.
  void require_image_processor() const;
  // Where a complaint about what is missing points.
  std::string place(const Part& part) const { return part.found() ? part.origin : folder.string(); }
  // A special token: as the tokenizer's attribute `name` ("image_token"), else the processor's key, else
  // `otherwise`.
  std::string special_token(const std::string& name, const std::string& otherwise) const;
};

// Error (kBadUsage) for a folder that is not there, files that are not JSON objects, or a family that is not
// known; the message lists those that are.
ProcessorFiles read_processor_files(const std::filesystem::path& folder);

// Indented JSON with keys in order, as transformers writes it.
std::string to_file(const nlohmann::ordered_json& json);

}  // namespace mso
