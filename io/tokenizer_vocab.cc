#include "io/tokenizer_vocab.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace mso {
namespace {

using nlohmann::json;

json added_token(const json& vocab, const std::string& content) {
  return {{"id", vocab.at(content)}, {"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},         {"normalized", false}, {"special", true}};
}

}  // namespace

// Sources: models/clip/tokenization_clip.py, models/gpt2/tokenization_gpt2.py of transformers.
std::string tokenizer_json_of_vocabulary(const std::string& vocab_text, const std::string& merges_text, const std::string& name) {
  json vocab;
  try {
    vocab = parse_shallow_json(vocab_text);
  } catch (const json::exception& error) {
    throw Error("not valid JSON", name + "/vocab.json: " + error.what(), "take the file again from where the model came from",
                ExitCode::kBadUsage);
  }
  if (!vocab.is_object()) throw Error("no JSON object", name + "/vocab.json", "", ExitCode::kBadUsage);
  const bool clip = vocab.contains("<|startoftext|>") && vocab.contains("<|endoftext|>") && vocab.contains("a</w>");
  if (!clip && !vocab.contains("<|endoftext|>"))
    throw Error("neither CLIP's vocabulary nor GPT-2's", name + "/vocab.json",
                "let transformers make a tokenizer.json: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)", ExitCode::kBadUsage);
  json merges = json::array();
  for (size_t start = 0; start < merges_text.size();) {
    const size_t end = std::min(merges_text.find('\n', start), merges_text.size());
    std::string line = merges_text.substr(start, end - start);
    start = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    // CLIP's file goes on behind the merges that the vocabulary has tokens for.
    const size_t space = line.find(' ');
    if (clip && space != std::string::npos && !vocab.contains(line.substr(0, space) + line.substr(space + 1))) continue;
    merges.push_back(std::move(line));
  }
  json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"decoder", byte_level}};
  json model = {{"type", "BPE"}, {"dropout", nullptr}, {"continuing_subword_prefix", ""}, {"fuse_unk", false}, {"byte_fallback", false}};
  root["added_tokens"] = json::array({added_token(vocab, "<|endoftext|>")});
  if (clip) {
    root["added_tokens"].push_back(added_token(vocab, "<|startoftext|>"));
    root["normalizer"] = {{"type", "Sequence"},
                          {"normalizers",
                           {{{"type", "NFC"}}, {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}}, {{"type", "Lowercase"}}}}};
    root["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern",
            {{"Regex", "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"}}},
           {"behavior", "Removed"},
           {"invert", true}},
          byte_level}}};
    root["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", {"<|endoftext|>", vocab.at("<|endoftext|>")}},
                              {"cls", {"<|startoftext|>", vocab.at("<|startoftext|>")}},
                              {"trim_offsets", false},
                              {"add_prefix_space", false}};
    model["unk_token"] = "<|endoftext|>";
    model["end_of_word_suffix"] = "</w>";
  } else {
    root["normalizer"] = nullptr;
    root["pre_tokenizer"] = byte_level;
    root["post_processor"] = byte_level;
    model["unk_token"] = nullptr;
    model["end_of_word_suffix"] = "";
  }
  model["vocab"] = std::move(vocab);
  model["merges"] = std::move(merges);
  root["model"] = std::move(model);
  return root.dump();
}

}  // namespace mso
