// Cuts the source of a Jinja template into tokens, with trim_blocks and lstrip_blocks, as jinja2's lexer does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mso::jinja {

struct Token {
  enum Kind { kData, kBlockBegin, kBlockEnd, kVariableBegin, kVariableEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };
  Kind kind = kEnd;
  std::string text;  // of a string: its value; of an operator: as written
  int line = 1;
};

// `source`: valid UTF-8. Error (kBadUsage) naming `name` and the line.
std::vector<Token> tokenize_template(std::string_view source, const std::string& name);

}  // namespace mso::jinja
