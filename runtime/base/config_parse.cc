#include <algorithm>
#include <cmath>

#include "base/config.h"
#include "base/config_schema.h"
#include "base/config_tree.h"
#include "base/file.h"
#include "base/suggest.h"
#include "base/units.h"

namespace mso {

using nlohmann::json;
using Kind = ConfigNode::Kind;

namespace {

std::string join_mistakes(const std::vector<ConfigMistake>& mistakes) {
  std::string text = mistakes.size() == 1 ? "1 mistake" : std::to_string(mistakes.size()) + " mistakes";
  for (const ConfigMistake& mistake : mistakes) {
    text += "\n  ";
    if (!mistake.where.empty()) text += mistake.where + ": ";
    if (!mistake.key.empty()) text += mistake.key + ": ";
    text += mistake.message;
  }
  return text;
}

// `"abc"`, `[1, 2]`, shortened: what stands there, for messages.
std::string shown(const ConfigNode& node) {
  if (node.kind == Kind::kMap) return "a map";
  if (node.kind == Kind::kList) return "a list";
  if (node.value.is_null()) return "nothing";
  return '"' + (node.text.size() > 60 ? node.text.substr(0, 57) + "..." : node.text) + '"';
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  return std::ranges::any_of(config_schema(),
                             [&](const ConfigKey& key) { return key.name.starts_with(prefix); });
}

// The known key nearest to an unknown one: by spelling of the whole, else the same last word in another
// section.
std::string nearest_key(const std::string& path) {
  std::vector<std::string> names, sections;
  for (const ConfigKey& key : config_schema()) {
    names.push_back(key.name);
    for (size_t dot = key.name.find('.'); dot != std::string::npos; dot = key.name.find('.', dot + 1))
      if (sections.empty() || sections.back() != key.name.substr(0, dot))
        sections.push_back(key.name.substr(0, dot));
  }
  const size_t dot = path.rfind('.');
  const std::string leaf = dot == std::string::npos ? path : path.substr(dot + 1);
  for (const std::string& name : names)
    if (name.ends_with("." + leaf)) return name;
  // Within the same section the last word decides; a long section name must not make everything near.
  if (dot != std::string::npos) {
    const std::string prefix = path.substr(0, dot + 1);
    std::vector<std::string> leaves;
    for (const std::vector<std::string>* list : {&names, &sections})
      for (const std::string& name : *list)
        if (name.starts_with(prefix)) leaves.push_back(name.substr(prefix.size()));
    const std::string near = nearest_name(leaf, leaves);
    if (!near.empty()) return prefix + near;
    if (is_section(path.substr(0, dot))) return "";
  }
  names.insert(names.end(), sections.begin(), sections.end());
  return nearest_name(path, names);
}

class Reader {
 public:
  explicit Reader(LoadedConfig& loaded) : loaded_(loaded) {}

  void read_file(const ConfigNode& root, const std::string& name) {
    file_ = name;
    walk(root, "");
    file_.clear();
  }

  void read_override(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      add("command line", "", "\"" + text + "\" is not KEY=VALUE");
      return;
    }
    const std::string path = text.substr(0, equals), raw = text.substr(equals + 1);
    if (!is_clean_utf8(path)) {
      add("command line", "", "a key that is not UTF-8 is set");
      return;
    }
    const ConfigKey* key = find_config_key(path);
    std::vector<ConfigMistake> syntax;
    ConfigNode node = parse_yaml_tree(raw, "command line", syntax);
    // An empty document is an empty map to the parser; here it is an empty value. A string is taken as it
    // stands, so that {caption} or "a: b" need no quotes.
    const bool text_key =
        key && key->type == KeyType::kString && !(node.kind == Kind::kScalar && node.quoted);
    const bool list_key =
        key && key->type == KeyType::kStringList && (!syntax.empty() || node.kind == Kind::kMap);
    if (text_key || list_key || raw.find_first_not_of(" \t") == std::string::npos) {
      node = ConfigNode();
      node.text = raw;
      node.value = raw.empty() ? json() : json(raw);
      syntax.clear();
      if (!is_clean_utf8(raw)) syntax.push_back({"command line", path, "the text is not UTF-8"});
    }
    if (!syntax.empty()) {
      for (ConfigMistake& mistake : syntax) add("command line", path, mistake.message);
      return;
    }
    node.line = 0;
    walk_value(path, "command line", node);
  }

  void check_consistency() {
    const Config& config = loaded_.config;
    if (config.train.min_learning_rate > config.train.learning_rate)
      conflict("train.min_learning_rate", "is greater than train.learning_rate");
    if (config.data.max_length > config.data.micro_batch_tokens)
      conflict("data.max_length", "is greater than data.micro_batch_tokens (" +
                                      std::to_string(config.data.micro_batch_tokens) +
                                      "): a sample must fit into a micro-batch");
    const MicroBatchConfig& parts = config.mdp.micro_batch;
    if (parts.text.memory + parts.image.memory + parts.video.memory + parts.audio.memory > 1 + 1e-9)
      conflict("mdp.micro_batch", "the shares of memory of text, image, video and audio are more than 1 together");
    for (const auto& [category, value] : config.mdp.healing.thresholds.items())
      if (!value.is_number() || value.get<double>() < 0 || value.get<double>() > 1)
        conflict("mdp.healing.thresholds." + category, "a number from 0 to 1 is wanted");
    if (!config.model.path.empty() &&
        !(config.model.vision.empty() && config.model.text.empty() && config.model.audio.empty()))
      conflict("model.path",
               "stands beside model.vision, model.text or model.audio: give the folder or the sizes, not both");
  }

  void finish() {
    if (!mistakes_.empty()) throw ConfigError(std::move(mistakes_));
  }

  std::vector<ConfigMistake>& mistakes() { return mistakes_; }

 private:
  void add(const std::string& where, const std::string& key, const std::string& message) {
    mistakes_.push_back({where, key, message});
  }

  void conflict(const std::string& key, const std::string& message) {
    auto source = loaded_.sources.find(key);
    add(source == loaded_.sources.end() ? "default" : source->second, key, message);
  }

  std::string where(int line) const {
    if (file_.empty()) return "command line";
    return line > 0 ? file_ + ":" + std::to_string(line) : file_;
  }

  void walk(const ConfigNode& node, const std::string& prefix) {
    if (node.kind == Kind::kScalar && node.value.is_null() && !node.quoted) return;  // an empty section
    if (node.kind != Kind::kMap) {
      add(where(node.line), prefix,
          (prefix.empty() ? "the configuration" : "this section") +
              std::string(" must be a map of keys, is ") + shown(node));
      return;
    }
    std::map<std::string, int> seen;
    for (const ConfigNode::Entry& entry : node.map) {
      const std::string path = prefix.empty() ? entry.name : prefix + "." + entry.name;
      auto [first, fresh] = seen.emplace(entry.name, entry.line);
      if (!fresh) {
        add(where(entry.line), path, "given twice, first on line " + std::to_string(first->second));
        continue;
      }
      walk_value(path, where(entry.line), entry.value);
    }
  }

  void walk_value(const std::string& path, const std::string& place, const ConfigNode& node) {
    if (const ConfigKey* key = find_config_key(path)) return assign(*key, place, node);
    if (is_section(path)) return walk(node, path);
    for (const ConfigKey& key : config_schema()) {
      if (key.type != KeyType::kMap || !path.starts_with(key.name + ".")) continue;
      // "model.text.rope_parameters.rope_theta": wrap the value in the maps above it.
      ConfigNode wrapped = node;
      std::string rest = path.substr(key.name.size() + 1);
      while (!rest.empty()) {
        const size_t dot = rest.rfind('.');
        ConfigNode outer;
        outer.kind = Kind::kMap;
        outer.map.push_back(
            {dot == std::string::npos ? rest : rest.substr(dot + 1), node.line, std::move(wrapped)});
        wrapped = std::move(outer);
        rest = dot == std::string::npos ? "" : rest.substr(0, dot);
      }
      return assign(key, place, wrapped);
    }
    const std::string near = nearest_key(path);
    add(place, path, near.empty() ? "unknown key" : "unknown key, did you mean " + near + "?");
  }

  void assign(const ConfigKey& key, const std::string& place, const ConfigNode& node) {
    if (key.type != KeyType::kMap) {
      auto [known, fresh] = loaded_.sources.try_emplace(key.name, place);
      if (!fresh) {
        if (!file_.empty()) return add(place, key.name, "given twice, first at " + known->second);
        if (known->second == place)
          loaded_.notes.push_back(key.name +
                                  " is given more than once on the command line; the last one counts");
        known->second = place;
      }
    }
    const size_t before = mistakes_.size();
    json value = convert(key, place, node);
    if (mistakes_.size() != before) return;
    if (!key.in_force && value != key.default_value)
      return add(place, key.name,
                 value_text(value) + " is not available yet; only the default " +
                     value_text(key.default_value) + " is accepted");
    key.set(loaded_.config, value);
  }

  void wrong(const ConfigKey& key, const std::string& place, const ConfigNode& node,
             const std::string& extra = "") {
    add(place, key.name, shown(node) + " where " + describe_type(key) + " is wanted" + extra);
  }

  json convert(const ConfigKey& key, const std::string& place, const ConfigNode& node) {
    switch (key.type) {
      case KeyType::kBool: {
        if (node.value.is_boolean()) return node.value;
        if (!node.quoted && (node.text == "yes" || node.text == "on")) return true;
        if (!node.quoted && (node.text == "no" || node.text == "off")) return false;
        wrong(key, place, node);
        return json();
      }
      case KeyType::kOptionalInteger:
        if (node.kind == Kind::kScalar && (node.value.is_null() || node.text == "auto")) return json();
        return integer(key, place, node);
      case KeyType::kInteger:
        return integer(key, place, node);
      case KeyType::kBytes: {
        if (node.kind == Kind::kScalar)
          if (auto bytes = parse_bytes(node.text)) {
            check_range(key, place, static_cast<double>(*bytes), node);
            return *bytes;
          }
        wrong(key, place, node);
        return json();
      }
      case KeyType::kNumber: {
        if (!node.value.is_number()) {
          const bool unit = !node.text.empty() && node.text[0] >= '0' && node.text[0] <= '9' && !node.quoted;
          wrong(key, place, node, unit ? " (the unit is in the key's name)" : "");
          return json();
        }
        const double number = node.value.get<double>();
        check_range(key, place, number, node);
        return number;
      }
      case KeyType::kString:
        return string(key, place, node);
      case KeyType::kIntegerList: {
        if (node.kind != Kind::kList || node.list.size() != key.default_value.size()) {
          wrong(key, place, node);
          return json();
        }
        json list = json::array();
        for (const ConfigNode& item : node.list) list.push_back(integer(key, place, item));
        return list;
      }
      case KeyType::kStringList: {
        json list = json::array();
        if (node.kind == Kind::kScalar && node.value.is_null()) return list;
        if (node.kind == Kind::kScalar) return json::array({string(key, place, node)});
        if (node.kind == Kind::kMap) wrong(key, place, node);
        for (const ConfigNode& item : node.list) list.push_back(string(key, place, item));
        return list;
      }
      case KeyType::kGroups:
        return groups(key, place, node);
      case KeyType::kMap: {
        if (node.kind == Kind::kScalar && node.value.is_null()) return key.get(loaded_.config);
        if (node.kind != Kind::kMap) {
          wrong(key, place, node);
          return json();
        }
        json merged = key.get(loaded_.config);
        merge_free(merged, node, key.name, place);
        return merged;
      }
    }
    return json();
  }

  void check_range(const ConfigKey& key, const std::string& place, double number, const ConfigNode& node) {
    if (number < key.min || number > key.max || (key.min_excluded && number == key.min))
      add(place, key.name, node.text + " is out of range: " + describe_type(key) + " is wanted");
  }

  json integer(const ConfigKey& key, const std::string& place, const ConfigNode& node) {
    // 1e6 is a fine way to write an integer.
    const bool whole = node.value.is_number_float() &&
                       std::fabs(node.value.get<double>()) <= 9007199254740992.0 &&
                       std::trunc(node.value.get<double>()) == node.value.get<double>();
    if (!node.value.is_number_integer() && !whole) {
      const bool unit =
          !node.value.is_number() && !node.text.empty() && node.text[0] >= '0' && node.text[0] <= '9';
      wrong(key, place, node, unit && !node.quoted ? " (the unit is in the key's name)" : "");
      return json();
    }
    check_range(key, place, node.value.get<double>(), node);
    return node.value.is_number_unsigned() && node.value.get<uint64_t>() > INT64_MAX
               ? json()
               : json(node.value.get<int64_t>());
  }

  json string(const ConfigKey& key, const std::string& place, const ConfigNode& node) {
    if (node.kind != Kind::kScalar) {
      wrong(key, place, node, key.choices.empty() ? "; text with { or [ needs quotes" : "");
      return json();
    }
    if (!key.choices.empty() && std::ranges::find(key.choices, node.text) == key.choices.end()) {
      const std::string near = nearest_name(node.text, key.choices);
      wrong(key, place, node, near.empty() ? "" : ", did you mean " + near + "?");
      return json();
    }
    if (std::ranges::find(key.unavailable, node.text) != key.unavailable.end())
      add(place, key.name, node.text + " is not available yet");
    if (node.value.is_null() && !node.quoted && key.type == KeyType::kStringList) {
      wrong(key, place, node);
      return json();
    }
    return node.value.is_null() && !node.quoted ? json("") : json(node.text);
  }

  json groups(const ConfigKey& key, const std::string& place, const ConfigNode& node) {
    json list = json::array();
    if (node.kind == Kind::kScalar && node.value.is_null()) return list;
    if (node.kind != Kind::kList) {
      wrong(key, place, node);
      return list;
    }
    for (size_t i = 0; i < node.list.size(); ++i) {
      const ConfigNode& item = node.list[i];
      const std::string name = key.name + "[" + std::to_string(i) + "]";
      const std::string item_place = file_.empty() ? place : where(item.line);
      if (item.kind != Kind::kMap) {
        add(item_place, name, shown(item) + " where a map with match is wanted");
        continue;
      }
      json group = json::object();
      for (const ConfigNode::Entry& entry : item.map) {
        const std::string entry_place = file_.empty() ? place : where(entry.line);
        if (group.contains(entry.name)) {
          add(entry_place, name + "." + entry.name, "given twice");
        } else if (entry.name == "match") {
          if (entry.value.kind != Kind::kScalar || entry.value.text.empty())
            add(entry_place, name + ".match", shown(entry.value) + " where a stage or pattern is wanted");
          group["match"] = entry.value.text;
        } else if (entry.name == "learning_rate_scale" || entry.name == "weight_decay") {
          if (!entry.value.value.is_number() || entry.value.value.get<double>() < 0)
            add(entry_place, name + "." + entry.name,
                shown(entry.value) + " where a number, 0 or more, is wanted");
          else
            group[entry.name] = entry.value.value.get<double>();
        } else {
          const std::string near = nearest_name(entry.name, {"match", "learning_rate_scale", "weight_decay"});
          add(entry_place, name + "." + entry.name,
              near.empty() ? "unknown key" : "unknown key, did you mean " + near + "?");
        }
      }
      if (!group.contains("match")) add(item_place, name, "has no match");
      list.push_back(std::move(group));
    }
    return list;
  }

  // Merges a map of free keys: maps go into each other, anything else replaces.
  void merge_free(json& into, const ConfigNode& node, const std::string& path, const std::string& place) {
    std::map<std::string, int> seen;
    for (const ConfigNode::Entry& entry : node.map) {
      const std::string name = path + "." + entry.name;
      const std::string entry_place = file_.empty() ? place : where(entry.line);
      if (auto [first, fresh] = seen.emplace(entry.name, entry.line); !fresh) {
        add(entry_place, name, "given twice, first on line " + std::to_string(first->second));
        continue;
      }
      if (entry.name.empty() || entry.name.find('.') != std::string::npos) {
        add(entry_place, name, "a key without a dot is wanted");
        continue;
      }
      if (entry.value.kind == Kind::kMap) {
        json& inner = into[entry.name];
        if (!inner.is_object()) inner = json::object();
        merge_free(inner, entry.value, name, entry_place);
      } else {
        into[entry.name] = free_value(entry.value, name, entry_place);
        loaded_.sources[name] = entry_place;
      }
    }
  }

  json free_value(const ConfigNode& node, const std::string& path, const std::string& place) {
    if (node.kind == Kind::kScalar) return node.value;
    json value = node.kind == Kind::kList ? json::array() : json::object();
    for (const ConfigNode& item : node.list) value.push_back(free_value(item, path, place));
    if (node.kind == Kind::kMap) merge_free(value, node, path, place);
    return value;
  }

  LoadedConfig& loaded_;
  std::string file_;  // the file that is being read; empty: the command line
  std::vector<ConfigMistake> mistakes_;
};

LoadedConfig parse(std::string_view text, const std::string& name,
                   const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  loaded.file = name;
  Reader reader(loaded);
  if (!name.empty()) reader.read_file(parse_yaml_tree(text, name, reader.mistakes()), name);
  for (const std::string& override_text : overrides) reader.read_override(override_text);
  if (reader.mistakes().empty()) reader.check_consistency();
  reader.finish();
  return loaded;
}

}  // namespace

ConfigError::ConfigError(std::vector<ConfigMistake> mistakes)
    : Error("configuration refused", join_mistakes(mistakes), "", ExitCode::kBadUsage),
      mistakes_(std::move(mistakes)) {}

LoadedConfig parse_config(std::string_view text, const std::string& name,
                          const std::vector<std::string>& overrides) {
  return parse(text, name, overrides);
}

LoadedConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  constexpr const char* kOldSpelling = "megscale_config.yaml";
  std::filesystem::path path = file;
  std::vector<std::string> notes;
  if (path.empty()) {
    std::error_code ignored;
    for (const char* name : {kDefaultConfigName, kOldSpelling}) {
      if (!std::filesystem::exists(name, ignored)) continue;
      if (path.empty())
        path = name;
      else
        notes.push_back(std::string(name) + " is not read: " + path.string() + " is there too");
    }
    if (path.empty()) notes.push_back("no configuration file: defaults and the command line only");
  }
  if (path.filename() == kOldSpelling)
    notes.push_back(std::string("read ") + kOldSpelling + "; the name is spelled " + kDefaultConfigName +
                    " now");
  std::string text;
  if (!path.empty()) {
    try {
      text = read_file(path, uint64_t{1} << 20);
    } catch (const Error& error) {
      throw Error("cannot read the configuration", error.what(), "give an existing YAML file with -c FILE",
                  ExitCode::kBadUsage);
    }
  }
  LoadedConfig loaded = parse(text, path.string(), overrides);
  loaded.notes.insert(loaded.notes.begin(), notes.begin(), notes.end());
  return loaded;
}

Config config_from_json(const json& value, const std::string& name) {
  LoadedConfig loaded;
  Reader reader(loaded);
  reader.read_file(json_to_tree(value), name);
  reader.check_consistency();
  reader.finish();
  return loaded.config;
}

}  // namespace mso
