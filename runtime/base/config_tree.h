// Configuration text as a tree that remembers lines: the same form for YAML files, overrides and stored JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace mso {

struct ConfigNode {
  enum class Kind { kScalar, kMap, kList };
  struct Entry;

  Kind kind = Kind::kScalar;
  int line = 0;            // from 1; 0: unknown
  nlohmann::json value;    // scalar, by the YAML 1.2 core schema: null, bool, integer, number or string
  std::string text;        // scalar, as written
  bool quoted = false;     // scalar in quotes: a string whatever it looks like
  std::vector<Entry> map;  // in file order; duplicate names are kept
  std::vector<ConfigNode> list;
};
struct ConfigNode::Entry {
  std::string name;
  int line = 0;
  ConfigNode value;
};

// Parses one YAML document; empty text is an empty map. Syntax errors, more than one document, text that is
// not UTF-8, too deep nesting and too many nodes (an alias bomb) go to `mistakes`; `name` stands for the
// file.
ConfigNode parse_yaml_tree(std::string_view text, const std::string& name,
                           std::vector<ConfigMistake>& mistakes);
ConfigNode json_to_tree(const nlohmann::json& json);

// A plain YAML scalar by the core schema ("12", "1e-3", "true", "~"; else a string). Infinity and NaN stay
// strings.
nlohmann::json resolve_plain_scalar(const std::string& text);

// True for well-formed UTF-8 without NUL.
bool is_clean_utf8(std::string_view text);

}  // namespace mso
