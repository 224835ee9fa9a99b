#include "io/tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "io/json_node.h"
#include "io/tokenizer_bytes.h"
#include "io/tokenizer_json.h"
#include "io/tokenizer_sentencepiece.h"
#include "io/tokenizer_vocab.h"

namespace mso {

namespace {
using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kMaxFile = uint64_t{512} << 20;

ordered_json read_json_if_there(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  try {
    return parse_shallow_json<ordered_json>(read_file(path, kMaxFile));
  } catch (const ordered_json::exception& error) {
    throw Error("not valid JSON", path.string() + ": " + error.what(),
                "the file is damaged or no JSON: take it again from where the model came from", ExitCode::kBadUsage);
  }
}

// tokenizer_config.json as it lies beside the file; bos, eos and pad tokens that only other files name are
// put into it, so that the two texts of a tokenizer say all.
std::string config_beside(const fs::path& folder, const Tokenizer& tokenizer) {
  const fs::path config_path = folder / "tokenizer_config.json";
  ordered_json config = read_json_if_there(config_path);
  if (!config.is_object()) config = ordered_json{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const ordered_json map = read_json_if_there(folder / "special_tokens_map.json");
  const ordered_json generation = read_json_if_there(folder / "generation_config.json");
  const ordered_json model = read_json_if_there(folder / "config.json");

  bool changed = !fs::exists(config_path);
  for (std::string name : {"bos_token", "eos_token", "pad_token"}) {
    if (config.contains(name) && !config[name].is_null()) continue;
    ordered_json token;
    if (map.is_object() && map.contains(name)) token = map[name];
    for (const ordered_json* other : {&generation, &model}) {
      if (!token.is_null() || !other->is_object() || !other->contains(name + "_id")) continue;
      ordered_json id = (*other)[name + "_id"];
      if (id.is_array() && !id.empty()) id = ordered_json(id[0]);  // several ends: the first
      if (!id.is_number_integer()) continue;
      if (auto text = tokenizer.token(id.get<int64_t>())) token = *text;
    }
    if (!token.is_null()) config[name] = token, changed = true;
  }
  return changed ? config.dump(2) + "\n" : read_file(config_path, kMaxFile);
}

// The same for a SentencePiece model, whose added tokens stand in files beside it as well: added_tokens.json of older
// folders ({"<image>": 32000}) becomes an added_tokens_decoder.
std::string sentencepiece_config(const fs::path& folder, std::string config_text) {
  ordered_json config = config_text.empty() ? ordered_json::object() : read_json_if_there(folder / "tokenizer_config.json");
  if (!config.is_object()) return config_text;
  bool changed = config_text.empty();
  const ordered_json added = read_json_if_there(folder / "added_tokens.json");
  const ordered_json map = read_json_if_there(folder / "special_tokens_map.json");
  if (!config.contains("added_tokens_decoder") && added.is_object() && !added.empty()) {
    ordered_json decoder = ordered_json::object();
    for (const auto& [content, id] : added.items())
      if (id.is_number_integer()) decoder[std::to_string(id.get<int64_t>())] = {{"content", content}, {"special", false}};
    config["added_tokens_decoder"] = std::move(decoder);
    changed = true;
  }
  if (map.is_object())
    for (const auto& [key, token] : map.items())
      if (!token.is_null() && (!config.contains(key) || config[key].is_null())) config[key] = token, changed = true;
  return changed ? config.dump(2) + "\n" : config_text;
}
}  // namespace

std::string Tokenizer::fingerprint() const {
  return hex64(hash64(config_text_, hash64(source_text_)));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& where) {
  if (where == "bytes") return parse_tokenizer(byte_tokenizer_json(), byte_tokenizer_config(), "bytes");
  fs::path path = where;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const fs::path folder = path;
    path = folder / "tokenizer.json";
    for (const char* model : {"tokenizer.model", "spiece.model"})
      if (!fs::exists(path, ignored) && fs::exists(folder / model, ignored)) path = folder / model;
    if (!fs::exists(path, ignored) && fs::exists(folder / "vocab.json", ignored) && fs::exists(folder / "merges.txt", ignored))
      return make_json_tokenizer(
          tokenizer_json_of_vocabulary(read_file(folder / "vocab.json", kMaxFile), read_file(folder / "merges.txt", kMaxFile), folder.string()),
          folder.string(), [&](const Tokenizer& tokenizer) { return config_beside(folder, tokenizer); });
  }
  if (!fs::exists(path, ignored))
    throw Error("the tokenizer is not there", path.string(),
                "give a tokenizer.json, a SentencePiece model, a folder that holds one, or 'bytes' for a plain byte tokenizer",
                ExitCode::kBadUsage);
  std::string source = read_file(path, kMaxFile);
  if (is_sentencepiece_model(source)) {
    std::string config;
    if (fs::exists(path.parent_path() / "tokenizer_config.json", ignored))
      config = read_file(path.parent_path() / "tokenizer_config.json", kMaxFile);
    return make_sentencepiece_tokenizer(std::move(source), sentencepiece_config(path.parent_path(), std::move(config)), path.string());
  }
  return make_json_tokenizer(std::move(source), path.string(), [&](const Tokenizer& tokenizer) {
    return config_beside(path.parent_path(), tokenizer);
  });
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string source_text, std::string config_text,
                                           const std::string& name) {
  if (is_sentencepiece_model(source_text)) return make_sentencepiece_tokenizer(std::move(source_text), std::move(config_text), name);
  return make_json_tokenizer(std::move(source_text), name, [&](const Tokenizer&) { return config_text; });
}

}  // namespace mso
