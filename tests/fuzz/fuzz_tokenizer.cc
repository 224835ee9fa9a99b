// Fuzz target: any bytes as tokenizer.json, then a fixed text there and back. Only mso::Error may come out.
// clang-format off
// Sources: io/tokenizer.cc io/tokenizer_added.cc io/tokenizer_bpe.cc io/tokenizer_bytes.cc io/tokenizer_decode.cc
// Sources: io/tokenizer_json.cc io/tokenizer_pattern.cc io/tokenizer_steps.cc io/utf8.cc
// Sources: runtime/base/error.cc runtime/base/file.cc runtime/base/hash.cc runtime/base/log.cc
// Packages: libpcre2-8 libutf8proc libxxhash spdlog
// clang-format on
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "io/tokenizer.h"

namespace {
using nlohmann::json;

void collect(json& node, std::vector<json*>& nodes) {
  nodes.push_back(&node);
  if (node.is_structured())
    for (json& child : node) collect(child, nodes);
}

std::string random_pattern(std::minstd_rand& random) {
  static const char* const kParts[] = {
      "a",         "b",     R"(\s)",   R"(\S)",  R"(\p{L})",  R"(\p{^N})", R"([^\s\p{L}])",
      "[a-c]",     "(?=a)", "(?!b)",   "(?<=a)", "(",         "(?:",       ")",
      "|",         "*",     "+",       "?",      "{2,3}",     "{,2}",      "++",
      "?+",        "$",     "^",       R"(\w)",  R"(\W)",     R"(\d)",     ".",
      R"(\x{e4})", " ",     "(?i:'s)", "(a+)+",  R"(\p{Han})"};
  std::string pattern;
  for (size_t n = 1 + random() % 8; n > 0; --n) pattern += kParts[random() % std::size(kParts)];
  return pattern;
}
}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Changes the JSON's structure half of the time: bytes changed at random seldom leave it valid.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  json root = json::parse(data, data + size, nullptr, false);
  if (random() % 2 == 0 || root.is_discarded() || !root.is_object())
    return LLVMFuzzerMutate(data, size, max_size);
  static const json kValues =
      json::parse(R"([0, 1, -1, 4294967296, 1.5, null, true, false, [], {}, "", " ", "a", "abc", "<unk>",
      "<0xC3>", "\u2581", "\u0301", {"String": "a"}, {"String": ""}, {"type": "ByteLevel"}, {"type": "NFC"}, {"type": "Fuse"}])");
  std::vector<json*> nodes;
  collect(root, nodes);
  json& node = *nodes[random() % nodes.size()];
  json other = random() % 2 ? kValues[random() % kValues.size()] : *nodes[random() % nodes.size()];
  switch (random() % 4) {
    case 0:
      if (node.is_structured() && !node.empty())
        node.erase(std::next(node.begin(), static_cast<int>(random() % node.size())));
      break;
    case 1:
      if (node.is_array()) node.insert(node.begin() + static_cast<int>(random() % (node.size() + 1)), other);
      break;
    case 2:
      for (json* pattern : nodes)
        // Only a text: replacing a list or an object would leave its own nodes, still to come, without memory.
        if (pattern->is_object() && pattern->contains("Regex") && (*pattern)["Regex"].is_string())
          (*pattern)["Regex"] = random_pattern(random);
      break;
    default:
      node = other;
  }
  std::string text = root.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kText =
      "The <image> 12345 b\xc3\xa4r's  e\xcc\x81 \r\n\t \xe4\xb8\xad\xe6\x96\x87 "
      "\xf0\x9f\x90\xbb\xe2\x80\x8d \xe2\x96\x81x <s></s> aaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab    \xff [x]abcde";
  try {
    auto tokenizer = mso::parse_tokenizer(std::string(reinterpret_cast<const char*>(data), size), "", "fuzz");
    std::vector<int64_t> ids = tokenizer->encode(kText, true);
    ids.insert(ids.end(), {-1, 0, 1, 2, 3, 255, 256, int64_t{1} << 40});
    tokenizer->decode(ids, false);
    tokenizer->decode(ids, true);
    for (int64_t id : ids)
      if (auto token = tokenizer->token(id)) tokenizer->token_id(*token);
  } catch (const mso::Error&) {
  }
  return 0;
}
