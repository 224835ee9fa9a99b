// How a configuration is written out and compared: YAML, JSON, listings of effective values, differences.
#include <algorithm>

#include "base/config.h"
#include "base/config_schema.h"
#include "base/config_tree.h"

namespace mso {

using nlohmann::json;

namespace {

// Walks the keys of a free map: calls visit(dotted name, value) for everything that is not a map, and for
// empty maps.
template <typename Visit>
void visit_leaves(const std::string& name, const json& value, const Visit& visit) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) visit_leaves(name + "." + key, inner, visit);
  } else {
    visit(name, value);
  }
}

bool plain_string(const std::string& text) {
  if (text.empty() || !resolve_plain_scalar(text).is_string()) return false;
  // Booleans to readers of YAML 1.1.
  for (const char* word : {"yes", "no", "on", "off", "y", "n"})
    if (std::ranges::equal(text, std::string_view(word), {},
                           [](char c) { return static_cast<char>(c | 0x20); }))
      return false;
  // Cautious: letters, digits and a few signs that mean nothing to YAML inside a word.
  return std::ranges::all_of(text,
                             [](char c) {
                               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                      (c >= '0' && c <= '9') || c == '_' || c == '/' || c == '.' ||
                                      c == '-' || c == '+';
                             }) &&
         text[0] != '-' && text[0] != '.' && text[0] != '+';
}

std::string yaml_value(const json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return plain_string(text) ? text : value.dump();  // a JSON string is a YAML string
  }
  if (value.is_array()) {
    std::string text = "[";
    for (const json& item : value) text += (text.size() > 1 ? ", " : "") + yaml_value(item);
    return text + "]";
  }
  if (value.is_object()) {
    std::string text = "{";
    for (const auto& [key, item] : value.items())
      text += (text.size() > 1 ? ", " : "") + yaml_value(json(key)) + ": " + yaml_value(item);
    return text + "}";
  }
  std::string number = value.dump();  // the shortest form that reads back the same
  // Readers of YAML 1.1 take 1e-08 for a string, 1.0e-08 for a number.
  const size_t exponent = number.find('e');
  if (value.is_number_float() && exponent != std::string::npos && number.find('.') == std::string::npos)
    number.insert(exponent, ".0");
  return number;
}

std::string key_text(const ConfigKey& key, const json& value) {
  if (key.type == KeyType::kOptionalInteger && value.is_null()) return "auto";
  return yaml_value(value);
}

json& at_path(json& root, std::string_view path) {
  json* node = &root;
  while (true) {
    const size_t dot = path.find('.');
    node = &(*node)[std::string(path.substr(0, dot))];
    if (dot == std::string_view::npos) return *node;
    path.remove_prefix(dot + 1);
  }
}

void write_free_map(std::string& out, const json& map, const std::string& indent) {
  for (const auto& [name, value] : map.items()) {
    out += indent + yaml_value(json(name)) + ":";
    if (value.is_object() && !value.empty()) {
      out += "\n";
      write_free_map(out, value, indent + "  ");
    } else {
      out += " " + yaml_value(value) + "\n";
    }
  }
}

}  // namespace

std::string value_text(const json& value) {
  return value.is_null() ? "auto" : yaml_value(value);
}

json to_json(const Config& config) {
  json root = json::object();
  for (const ConfigKey& key : config_schema()) at_path(root, key.name) = key.get(config);
  return root;
}

std::string to_yaml(const Config& config) {
  std::string out;
  std::vector<std::string> open;  // sections the last line stands in
  for (const ConfigKey& key : config_schema()) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= key.name.size();) {
      const size_t dot = std::min(key.name.find('.', begin), key.name.size());
      parts.push_back(key.name.substr(begin, dot - begin));
      begin = dot + 1;
    }
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
    open.resize(common);
    for (; common + 1 < parts.size(); ++common) {
      out += std::string(2 * common, ' ') + parts[common] + ":\n";
      open.push_back(parts[common]);
    }
    const json value = key.get(config);
    const std::string indent(2 * common, ' ');
    out += indent + parts.back() + ":";
    if (key.type == KeyType::kMap && !value.empty()) {
      out += "\n";
      write_free_map(out, value, indent + "  ");
    } else {
      out += " " + key_text(key, value) + "\n";
    }
  }
  return out;
}

std::vector<ConfigDifference> diff_config(const Config& old_config, const Config& new_config) {
  std::vector<ConfigDifference> differences;
  for (const ConfigKey& key : config_schema()) {
    const json before = key.get(old_config), after = key.get(new_config);
    if (before == after) continue;
    if (key.type != KeyType::kMap) {
      differences.push_back({key.name, key_text(key, before), key_text(key, after), key.safe});
      continue;
    }
    std::map<std::string, std::pair<std::string, std::string>> leaves;
    visit_leaves(key.name, before, [&](const std::string& name, const json& value) {
      leaves[name] = {yaml_value(value), "(none)"};
    });
    visit_leaves(key.name, after, [&](const std::string& name, const json& value) {
      leaves.try_emplace(name, "(none)", "").first->second.second = yaml_value(value);
    });
    for (const auto& [name, values] : leaves)
      if (values.first != values.second) differences.push_back({name, values.first, values.second, key.safe});
  }
  return differences;
}

std::vector<EffectiveValue> effective_values(const LoadedConfig& loaded) {
  std::vector<EffectiveValue> values;
  auto source = [&](const std::string& key) {
    auto found = loaded.sources.find(key);
    return found == loaded.sources.end() ? std::string("default") : found->second;
  };
  for (const ConfigKey& key : config_schema()) {
    const json value = key.get(loaded.config);
    if (key.type == KeyType::kMap)
      visit_leaves(key.name, value, [&](const std::string& name, const json& leaf) {
        values.push_back({name, yaml_value(leaf), source(name), key.in_force});
      });
    else
      values.push_back({key.name, key_text(key, value), source(key.name), key.in_force});
  }
  return values;
}

std::string format_effective_values(const LoadedConfig& loaded) {
  const std::vector<EffectiveValue> values = effective_values(loaded);
  size_t key_width = 0, value_width = 0;
  for (const EffectiveValue& value : values) {
    key_width = std::max(key_width, value.key.size());
    if (value.value.size() <= 32) value_width = std::max(value_width, value.value.size());
  }
  std::string out;
  for (const EffectiveValue& value : values) {
    std::string line = value.key + std::string(key_width - value.key.size() + 2, ' ') + value.value;
    line += std::string(value_width > value.value.size() ? value_width - value.value.size() : 0, ' ') + "  " +
            value.source + (value.in_force ? "" : " (not in force)");
    out += line + "\n";
  }
  return out;
}

std::vector<std::string> defaults_not_in_force() {
  std::vector<std::string> keys;
  for (const ConfigKey& key : config_schema())
    if (!key.in_force) keys.push_back(key.name + ": " + key_text(key, key.default_value));
  return keys;
}

}  // namespace mso
