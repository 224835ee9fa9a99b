#include "io/tokenizer_bytes.h"

#include <array>
#include <nlohmann/json.hpp>

#include "io/utf8.h"

namespace mso {

namespace {
constexpr std::array<std::string_view, 8> kSpecials = {
    "<pad>", "<bos>", "<eos>", "<image>", "<video>", "<audio>", "<reserved262>", "<reserved263>"};
constexpr size_t kNamedSpecials = 6;  // the reserved ones only fill the vocabulary to a multiple of eight
constexpr int kBos = 257;

}  // namespace

std::string byte_tokenizer_json() {
  using nlohmann::ordered_json;
  ordered_json vocabulary = ordered_json::object(), added = ordered_json::array();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_letter(static_cast<uint8_t>(byte))] = byte;
  for (size_t i = 0; i < kSpecials.size(); ++i) vocabulary[std::string(kSpecials[i])] = 256 + i;
  for (size_t i = 0; i < kNamedSpecials; ++i)
    added.push_back({{"id", 256 + i},
                     {"content", kSpecials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  ordered_json bos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};
  ordered_json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  ordered_json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  ordered_json root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added;
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = byte_level;
  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", ordered_json::array({bos, first})},
      {"pair", ordered_json::array({bos, first, second})},
      {"special_tokens", {{"<bos>", {{"id", "<bos>"}, {"ids", {kBos}}, {"tokens", {"<bos>"}}}}}}};
  root["decoder"] = byte_level;
  root["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", vocabulary},
                   {"merges", ordered_json::array()}};
  return root.dump(2) + "\n";
}

std::string byte_tokenizer_config() {
  return R"({
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": "<bos>",
  "eos_token": "<eos>",
  "pad_token": "<pad>",
  "additional_special_tokens": ["<image>", "<video>", "<audio>"],
  "clean_up_tokenization_spaces": false
}
)";
}

std::string byte_letter(uint8_t byte) {
  // Printable Latin-1 stands for itself; the other 68 bytes take U+0100, U+0101, … in order.
  auto printable = [](int b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += !printable(b);
  }
  std::string letter;
  append_utf8(letter, code);
  return letter;
}

}  // namespace mso
