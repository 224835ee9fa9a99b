// Regular expressions of tokenizer.json: Oniguruma syntax, as `tokenizers` reads it, run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_node.h"

namespace mso {

// A part of a text; consecutive spans cover it. `match`: found by the pattern, else what lies between.
struct TextSpan {
  size_t start, end;
  bool match;
};

// The same pattern in PCRE2's syntax: \s, \d, \w spelled out as Oniguruma's classes, scripts as sc:, and so
// on. Throws std::invalid_argument naming what has another meaning in PCRE2 and is not translated.
std::string translate_pattern(std::string_view oniguruma);

// A compiled pattern; immutable, may be used from several threads at once.
class TextPattern {
 public:
  // Throws std::invalid_argument saying what is wrong with the expression.
  static TextPattern regex(std::string_view oniguruma);
  static TextPattern literal(std::string text);

  // Appends the spans of a valid UTF-8 text; none for an empty one. Empty matches are spans too (a cut).
  // Throws mso::Error when matching needs more steps than 1 million and 8 per byte of text, or more than 1 MB
  // of stack.
  void find(std::string_view text, std::vector<TextSpan>& spans) const;

  // The text with `content` for each match. Error when that makes it longer by more than 64 MiB.
  std::string replace(std::string_view text, std::string_view content) const;

 private:
  TextPattern() = default;
  std::shared_ptr<const void> code_;  // pcre2_code; null for a literal
  std::string text_;                  // the expression, or the literal
};

// {"String": "…"} or {"Regex": "…"}; Error with the path when it does not compile.
TextPattern pattern_of(const JsonNode& node);

}  // namespace mso
