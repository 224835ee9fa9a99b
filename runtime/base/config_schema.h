// The table of configuration keys: the single source for parsing, listings, the man page and the sample file.
#pragma once

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace mso {

enum class KeyType {
  kBool,
  kInteger,
  kOptionalInteger,  // null stands for "auto"
  kNumber,
  kString,
  kBytes,        // an integer; text such as "16G" is accepted
  kIntegerList,  // of a fixed length, that of the default
  kStringList,   // one string is accepted for a list of one
  kMap,          // free keys, scalars and lists below
  kGroups,       // list of {match, learning_rate_scale, weight_decay}
};

struct ConfigKey {
  std::string name;  // dotted
  KeyType type = KeyType::kString;
  nlohmann::json default_value;
  std::string help;  // one line
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  std::vector<std::string> choices;      // of a string; empty: any
  std::vector<std::string> unavailable;  // choices that are refused by name for now
  bool in_force = true;                  // false: only the default is accepted for now
  bool safe = false;                     // may change when a run is resumed
  std::function<nlohmann::json(const Config&)> get;
  std::function<void(Config&, const nlohmann::json&)> set;
};

// All keys, in the order of the listings; names are unique.
const std::vector<ConfigKey>& config_schema();
const ConfigKey* find_config_key(std::string_view name);  // null: no such key
// One line about a section ("ero"), for listings.
std::string section_help(std::string_view section);

// "integer, 1 or more", "fp32 | bf16 | routed"…
std::string describe_type(const ConfigKey& key);
// A value as it would stand in YAML, on one line; null of an optional integer is "auto".
std::string value_text(const nlohmann::json& value);

// The sample file with every key at its default and its help as a comment, and the manual page.
std::string sample_config();
std::string config_man_page();
// A plain listing of all keys: type, default, help.
std::string format_config_keys();

}  // namespace mso
