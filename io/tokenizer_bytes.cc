#include "io/tokenizer_bytes.h"

#include <array>
#include <nlohmann/json.hpp>

#include "io/utf8.h"

namespace mso {

namespace {
constexpr std::array<std::string_view, 8> kSpecials = {"<pad>",         "<bos>",         "<eos>",         "<image>",
                                                       "<reserved260>", "<reserved261>", "<reserved262>", "<reserved263>"};
constexpr size_t kNamedSpecials = 4;  // the reserved ones only fill the vocabulary to a multiple of eight
constexpr int64_t kPad = 256, kBos = 257, kEos = 258;

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

constexpr std::string_view kConfig = R"({
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": "<bos>",
  "eos_token": "<eos>",
  "pad_token": "<pad>",
  "additional_special_tokens": ["<image>"],
  "clean_up_tokenization_spaces": false
}
)";

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    bos_id_ = kBos;
    eos_id_ = kEos;
    pad_id_ = kPad;
    source_text_ = byte_tokenizer_json();
    config_text_ = kConfig;
  }

  std::vector<int64_t> encode(std::string_view utf8, bool add_special_tokens) const override {
    std::string storage;
    std::string_view text = valid_utf8(utf8, storage);
    std::vector<int64_t> ids;
    ids.reserve(text.size() + 1);
    if (add_special_tokens) ids.push_back(kBos);
    for (size_t i = 0; i < text.size();) {
      size_t special = text[i] == '<' ? special_at(text.substr(i)) : kNamedSpecials;
      if (special < kNamedSpecials) {
        ids.push_back(static_cast<int64_t>(256 + special));
        i += kSpecials[special].size();
      } else {
        ids.push_back(static_cast<uint8_t>(text[i++]));
      }
    }
    return ids;
  }

  std::string decode(std::span<const int64_t> ids, bool skip_special) const override {
    std::string bytes, storage;
    for (int64_t id : ids) {
      if (id < 0 || id >= vocabulary_size()) continue;
      if (id < 256)
        bytes += static_cast<char>(id);
      else if (!skip_special || id >= static_cast<int64_t>(256 + kNamedSpecials))
        bytes += kSpecials[static_cast<size_t>(id - 256)];
    }
    return std::string(valid_utf8(bytes, storage));
  }

  int64_t vocabulary_size() const override { return 256 + static_cast<int64_t>(kSpecials.size()); }

  std::optional<int64_t> token_id(std::string_view token) const override {
    for (size_t i = 0; i < kSpecials.size(); ++i)
      if (token == kSpecials[i]) return static_cast<int64_t>(256 + i);
    for (int byte = 0; byte < 256; ++byte)
      if (token == byte_letter(static_cast<uint8_t>(byte))) return byte;
    return std::nullopt;
  }

  std::optional<std::string> token(int64_t id) const override {
    if (id < 0 || id >= vocabulary_size()) return std::nullopt;
    return id < 256 ? byte_letter(static_cast<uint8_t>(id)) : std::string(kSpecials[static_cast<size_t>(id - 256)]);
  }

 private:
  // Which named special token the text begins with; kNamedSpecials for none.
  static size_t special_at(std::string_view text) {
    size_t i = 0;
    while (i < kNamedSpecials && !text.starts_with(kSpecials[i])) ++i;
    return i;
  }
};
}  // namespace

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

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace mso
