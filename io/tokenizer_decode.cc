#include "io/tokenizer_decode.h"

#include <optional>
#include <unordered_map>

#include "base/joined.h"
#include "io/tokenizer_bytes.h"
#include "io/utf8.h"

namespace mso {

namespace {
constexpr int kMaxDepth = 8;
constexpr std::string_view kReplacement = "\uFFFD";

using Tokens = std::vector<std::string>;

// A token in GPT-2's letters as bytes; a token with any other character stays as it is.
void append_bytes(const std::string& token, std::string& bytes) {
  static const auto& letters = *new std::unordered_map<std::string, char>([] {
    std::unordered_map<std::string, char> map;
    for (int byte = 0; byte < 256; ++byte)
      map[byte_letter(static_cast<uint8_t>(byte))] = static_cast<char>(byte);
    return map;
  }());
  const size_t before = bytes.size();
  for (size_t i = 0; i < token.size(); i += utf8_length(token[i])) {
    auto letter = letters.find(token.substr(i, utf8_length(token[i])));
    if (letter == letters.end()) {
      bytes.resize(before);
      bytes += token;
      return;
    }
    bytes += letter->second;
  }
}

// The byte of "<0x0A>". Rust's from_str_radix takes lower case and a sign too.
std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

Tokens byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes, storage;
  auto flush = [&] {
    if (bytes.empty()) return;
    if (valid_utf8(bytes, storage).data() == bytes.data())
      out.push_back(bytes);
    else
      out.insert(out.end(), bytes.size(), std::string(kReplacement));
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (auto byte = fallback_byte(token)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

// Takes up to `start` characters `c` off the front, `stop` off the end.
std::string_view stripped(std::string_view token, std::string_view c, size_t start, size_t stop) {
  std::string_view whole = token;
  for (; start > 0 && token.starts_with(c); --start) token.remove_prefix(c.size());
  // The end is looked at in the whole token, as `tokenizers` does; where both meet, nothing is left.
  size_t end = whole.size();
  for (; stop > 0 && whole.substr(0, end).ends_with(c); --stop) end -= c.size();
  size_t cut = whole.size() - token.size();
  return end > cut ? whole.substr(cut, end - cut) : std::string_view();
}

const std::string& character(const JsonNode& node) {
  const std::string& text = node.string();
  if (text.empty() || text.size() != utf8_length(text[0])) node.fail("not a single character");
  return text;
}
}  // namespace

TokenDecoder::TokenDecoder(const JsonNode& node) {
  if (node.is_null()) return;
  none_ = false;
  add(node, 0);
}

void TokenDecoder::add(const JsonNode& node, int depth) {
  const std::string& type = node["type"].string();
  if (type == "Sequence") {
    if (depth == kMaxDepth) node.fail("sequences are nested too deeply");
    JsonNode parts = node["decoders"];
    for (size_t i = 0; i < parts.size(); ++i) add(parts[i], depth + 1);
  } else if (type == "ByteLevel") {
    steps_.push_back({Step::kByteLevel, {}});
  } else if (type == "ByteFallback") {
    steps_.push_back({Step::kByteFallback, {}});
  } else if (type == "Fuse") {
    steps_.push_back({Step::kFuse, {}});
  } else if (type == "Strip") {
    Step step{Step::kStrip, character(node["content"])};
    step.start = static_cast<size_t>(node["start"].integer(1 << 20));
    step.stop = static_cast<size_t>(node["stop"].integer(1 << 20));
    steps_.push_back(std::move(step));
  } else if (type == "Replace") {
    Step step{Step::kReplace, node["content"].string()};
    step.pattern = pattern_of(node["pattern"]);
    steps_.push_back(std::move(step));
  } else if (type == "BPEDecoder") {
    steps_.push_back({Step::kSuffix, node.has("suffix") ? node["suffix"].string() : "</w>"});
  } else if (type == "Metaspace") {
    Step step{Step::kMetaspace, character(node["replacement"])};
    std::string scheme = node.has("prepend_scheme") ? node["prepend_scheme"].string() : "always";
    step.prefix = scheme != "never" && node.boolean("add_prefix_space", true);
    steps_.push_back(std::move(step));
  } else {
    node["type"].fail("the decoder '" + type + "' is not supported",
                      "supported: ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, Sequence");
  }
}

std::string TokenDecoder::decode(Tokens tokens) const {
  if (none_) return joined(tokens, " ");
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::kByteLevel: {
        std::string bytes, storage;
        for (const std::string& token : tokens) append_bytes(token, bytes);
        tokens = {std::string(valid_utf8(bytes, storage))};
        break;
      }
      case Step::kByteFallback:
        tokens = byte_fallback(tokens);
        break;
      case Step::kFuse:
        tokens = {joined(tokens, "")};
        break;
      case Step::kStrip:
        for (std::string& token : tokens)
          token = std::string(stripped(token, step.text, step.start, step.stop));
        break;
      case Step::kReplace:
        for (std::string& token : tokens) token = step.pattern.replace(token, step.text);
        break;
      case Step::kSuffix: {
        const TextPattern suffix = TextPattern::literal(step.text);
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = suffix.replace(tokens[i], i + 1 < tokens.size() ? " " : "");
        break;
      }
      case Step::kMetaspace:
        for (size_t i = 0; i < tokens.size(); ++i) {
          std::string out;
          const std::string& token = tokens[i];
          for (size_t at = 0; at < token.size(); at += utf8_length(token[at])) {
            std::string_view c = std::string_view(token).substr(at, utf8_length(token[at]));
            if (c != step.text)
              out += c;
            else if (i > 0 || !step.prefix)
              out += ' ';
          }
          tokens[i] = std::move(out);
        }
        break;
    }
  }
  return joined(tokens, "");
}

}  // namespace mso
