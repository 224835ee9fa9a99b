// JSON that comes from outside: parsed only where it is not nested beyond reason, because a program that walks, copies
// or prints a tree of JSON does so by recursion and a deep one ends its stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace mso {

inline constexpr int kMaxJsonDepth = 64;

// How deep arrays and objects are nested in `text`, which need not be valid: 0 for "1", 2 for "[[]]".
inline int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

class JsonTooDeep : public nlohmann::json::exception {
 public:
  JsonTooDeep() : exception(101, "nested more than 64 deep") {}
};

// The value of `text`. Throws nlohmann::json::exception for invalid JSON and for what is nested more than
// kMaxJsonDepth deep.
template <typename Json = nlohmann::json>
Json parse_shallow_json(std::string_view text) {
  if (json_depth(text) > kMaxJsonDepth) throw JsonTooDeep();
  return Json::parse(text);
}

}  // namespace mso
