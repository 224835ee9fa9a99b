#include "node/drift.h"

#include <algorithm>
#include <map>

namespace mso {

namespace {
constexpr size_t kMaxNamed = 8;  // nodes named for a value

std::string printable(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text.substr(0, 200);
}
}  // namespace

std::string format_node_versions(const NodeVersions& versions) {
  std::string text = printable(versions.node) + "\n";
  for (const auto& [name, value] : versions.values) text += printable(name) + "=" + printable(value) + "\n";
  return text;
}

NodeVersions parse_node_versions(std::string_view text) {
  NodeVersions versions;
  bool first = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (first)
      versions.node = line;
    else if (equals != std::string_view::npos)
      versions.values.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    first = false;
  }
  return versions;
}

std::vector<std::string> find_drift(const std::vector<NodeVersions>& nodes) {
  std::vector<std::string> names;  // in the order of the first node that has them
  std::map<std::string, std::map<std::string, std::vector<std::string>>> seen;  // name → value → nodes
  for (const NodeVersions& versions : nodes)
    for (const auto& [name, value] : versions.values) {
      if (!seen.contains(name)) names.push_back(name);
      std::vector<std::string>& list = seen[name][value];
      if (std::ranges::find(list, versions.node) == list.end()) list.push_back(versions.node);
    }
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    std::vector<std::pair<std::string, std::vector<std::string>>> values(seen[name].begin(), seen[name].end());
    if (values.size() < 2) continue;
    std::ranges::stable_sort(values, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    std::string sentence = name + ":";
    for (size_t i = 0; i < values.size(); ++i) {
      sentence += (i ? "; " : " ") + (values[i].first.empty() ? "none" : values[i].first) + " on ";
      const std::vector<std::string>& list = values[i].second;
      for (size_t k = 0; k < list.size() && k < kMaxNamed; ++k) sentence += (k ? ", " : "") + list[k];
      if (list.size() > kMaxNamed) sentence += " and " + std::to_string(list.size() - kMaxNamed) + " more";
    }
    sentences.push_back(sentence);
  }
  return sentences;
}

}  // namespace mso
