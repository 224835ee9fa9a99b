// Listings made from the table of keys: plain text, the sample file, the manual page.
#include <algorithm>
#include <sstream>

#include "base/config_schema.h"

namespace mso {

using nlohmann::json;

namespace {

std::string number_text(double number) {
  if (number == static_cast<double>(static_cast<int64_t>(number)))
    return std::to_string(static_cast<int64_t>(number));
  return json(number).dump();
}

std::string range_text(const ConfigKey& key) {
  // Bounds that only keep numbers sane (2^53, a day…) would be noise; they show when they are hit.
  const bool has_min = key.min > -1000, has_max = key.max < 1024 && key.type != KeyType::kIntegerList;
  if (has_min && has_max && !key.min_excluded)
    return " from " + number_text(key.min) + " to " + number_text(key.max);
  if (has_min && key.min_excluded)
    return " above " + number_text(key.min) + (has_max ? ", " + number_text(key.max) + " at most" : "");
  std::string text;
  if (has_min) text += ", " + number_text(key.min) + " or more";
  if (has_max) text += ", " + number_text(key.max) + " at most";
  return text;
}

std::string section_of(const ConfigKey& key) {
  return key.name.substr(0, key.name.find('.'));
}

std::string default_text(const ConfigKey& key) {
  return key.type == KeyType::kOptionalInteger && key.default_value.is_null() ? "auto"
                                                                              : value_text(key.default_value);
}

// roff: a backslash or a leading dot or quote would be a command; a minus is not a hyphen.
std::string roff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

// Breaks a line of words at `width` columns; continuation lines start with `indent`.
std::string wrap(const std::string& text, size_t width, const std::string& indent) {
  std::istringstream words(text);
  std::string out, line, word;
  while (words >> word) {
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width) {
      out += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + indent + line + "\n";
}

}  // namespace

std::string describe_type(const ConfigKey& key) {
  switch (key.type) {
    case KeyType::kBool:
      return "true or false";
    case KeyType::kInteger:
      return "an integer" + range_text(key);
    case KeyType::kOptionalInteger:
      return "an integer" + range_text(key) + ", or auto";
    case KeyType::kNumber:
      return "a number" + range_text(key);
    case KeyType::kBytes:
      return "a size in bytes such as 16G";
    case KeyType::kString: {
      if (key.choices.empty()) return "text";
      std::string text;
      for (const std::string& choice : key.choices) text += (text.empty() ? "" : " | ") + choice;
      return text;
    }
    case KeyType::kIntegerList:
      return "a list of " + std::to_string(key.default_value.size()) + " integers" + range_text(key);
    case KeyType::kStringList:
      return "text or a list of texts";
    case KeyType::kMap:
      return "a map";
    case KeyType::kGroups:
      return "a list of maps";
  }
  return "";
}

std::string sample_config() {
  std::string out =
      "# MegaScale-Omni: every key with its default. Remove what you do not change; see "
      "megascale_config.yaml(5).\n"
      "# Keys marked 'not in force yet' are accepted at their default only.\n";
  std::vector<std::string> open;
  for (const ConfigKey& key : config_schema()) {
    std::vector<std::string> parts;
    std::istringstream name(key.name);
    for (std::string part; std::getline(name, part, '.');) parts.push_back(part);
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
    open.resize(common);
    for (; common + 1 < parts.size(); ++common) {
      if (common == 0) out += "\n# " + section_help(parts[0]) + ".\n";
      out += std::string(2 * common, ' ') + parts[common] + ":\n";
      open.push_back(parts[common]);
    }
    const std::string indent(2 * common, ' ');
    std::string help = key.help;
    if (!key.choices.empty()) help += " One of: " + describe_type(key) + ".";
    for (const std::string& value : key.unavailable) help += " '" + value + "' is not available yet.";
    if (!key.in_force) help += " Not in force yet.";
    out += wrap(help, 112, indent + "# ");
    out += indent + parts.back() + ": " + default_text(key) + "\n";
  }
  return out;
}

std::string format_config_keys() {
  std::string out, section;
  for (const ConfigKey& key : config_schema()) {
    if (section_of(key) != section) {
      section = section_of(key);
      out += (out.empty() ? "" : "\n") + section_help(section) + "\n";
    }
    out += "  " + key.name + ": " + default_text(key) + "\n";
    out += wrap(key.help + " (" + describe_type(key) + (key.safe ? "; may change on resume" : "") +
                    (key.in_force ? "" : "; not in force yet") + ")",
                100, "      ");
  }
  return out;
}

std::string config_man_page() {
  std::string out =
      ".\\\" Made by 'mso config --man' from the table in runtime/base/config_schema.cc; do not edit.\n"
      ".TH MEGASCALE_CONFIG.YAML 5 \"\" \"MegaScale\\-Omni\" \"File formats\"\n"
      ".SH NAME\n"
      "megascale_config.yaml \\- configuration of a training run of mso\n"
      ".SH DESCRIPTION\n"
      "A YAML file with the sections below, each a map of keys. Every key has a default. Values on the "
      "command line,\n"
      "as in\n.BR \"mso train \\-c FILE train.steps=300\" ,\n"
      "come after the file and win: maps are merged, everything else is replaced.\n"
      "Without\n.B \\-c\nthe file\n.I megascale_config.yaml\nin the current directory is read where it "
      "exists\n"
      "(the spelling\n.I megscale_config.yaml\nis accepted with a note).\n"
      ".PP\n"
      "Unknown keys, wrong types, values out of range and keys given twice are all reported at once, with "
      "line and\n"
      "nearest known key; mso then exits with code 2 and has started nothing.\n"
      ".PP\n"
      "The unit of a duration or size is in the key's name (ms, s, m, mb). Sizes in bytes may be written as "
      "16G.\n"
      "Relative paths start at the current directory.\n"
      ".PP\n"
      "A run goes on after a change of the keys marked\n.IR \"may change on resume\" ;\n"
      "any other difference from the run's own configuration is refused.\n"
      "Keys marked\n.I not in force yet\nare accepted at their default only.\n";
  std::string section;
  for (const ConfigKey& key : config_schema()) {
    if (section_of(key) != section) {
      section = section_of(key);
      std::string title = section;
      std::ranges::transform(title, title.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
      out += ".SH " + title + "\n" + roff(section_help(section)) + ".\n";
    }
    out += ".TP\n.BR " + roff(key.name) + "\n" + roff(key.help) + "\n.br\n";
    std::string facts = "Type: " + describe_type(key) + ". Default: " + default_text(key) + ".";
    for (const std::string& value : key.unavailable) facts += " " + value + " is not available yet.";
    if (key.safe) facts += " May change on resume.";
    if (!key.in_force) facts += " Not in force yet.";
    out += roff(facts) + "\n";
  }
  out +=
      ".SH EXAMPLE\n.nf\n"
      "model:\n  path: llava\\-1.5\\-7b\n  freeze: [vision_encoder]\n"
      "data:\n  path: /data/shards\n"
      "train:\n  learning_rate: 2e\\-5\n  run_dir: runs/stage2\n"
      ".fi\n.SH SEE ALSO\n.BR mso (1)\n";
  return out;
}

}  // namespace mso
