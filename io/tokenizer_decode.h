// Decoders of tokenizer.json: from tokens to text.
#pragma once

#include <string>
#include <vector>

#include "io/json_node.h"
#include "io/tokenizer_pattern.h"

namespace mso {

class TokenDecoder {
 public:
  TokenDecoder() = default;  // tokens joined by spaces, as `tokenizers` does without a decoder
  explicit TokenDecoder(const JsonNode& node);  // Error naming what is not supported
  std::string decode(std::vector<std::string> tokens) const;

 private:
  struct Step {
    enum Kind { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace, kSuffix } kind;
    std::string text;                                // Replace: put in place; Strip, Metaspace: the character
    TextPattern pattern = TextPattern::literal("");  // Replace
    size_t start = 0, stop = 0;                      // Strip: how many at most
    bool prefix = false;  // Metaspace: the first token begins with one that is no space
  };
  void add(const JsonNode& node, int depth);
  std::vector<Step> steps_;
  bool none_ = true;
};

}  // namespace mso
