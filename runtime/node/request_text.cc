#include "node/request_text.h"

#include <algorithm>

#include "base/suggest.h"

namespace mso {

std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 40 ? out + "..." : out;
}

std::optional<int64_t> parse_small_number(std::string_view text, int64_t min, int64_t max) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (value < min || value > max) return std::nullopt;
  return value;
}

std::optional<std::vector<RequestItem>> parse_request_items(std::string_view text, const std::string& what,
                                                            const std::vector<std::string>& known,
                                                            const std::string& example,
                                                            std::vector<std::string>& mistakes) {
  const size_t before = mistakes.size();
  if (text.empty() || text.size() > kMaxRequestText) {
    mistakes.push_back(what + (text.empty() ? " request is empty" : " request is longer than 1024 characters") +
                       " (such as " + example + ")");
    return std::nullopt;
  }
  std::vector<RequestItem> items;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == item.size()) {
      mistakes.push_back("\"" + shown(item) + "\" is not NAME:VALUE (such as " + example + ")");
      continue;
    }
    RequestItem parsed{std::string(item.substr(0, colon)), std::string(item.substr(colon + 1))};
    if (std::ranges::find(known, parsed.name) == known.end()) {
      const std::string near = parsed.name.size() <= 40 ? nearest_name(parsed.name, known) : "";
      std::string names;
      for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
      mistakes.push_back("\"" + shown(parsed.name) + "\" is unknown" +
                         (near.empty() ? "; there are: " + names : "; did you mean " + near + "?"));
      continue;
    }
    if (std::ranges::any_of(items, [&](const RequestItem& other) { return other.name == parsed.name; })) {
      mistakes.push_back(parsed.name + " is given twice");
      continue;
    }
    items.push_back(std::move(parsed));
  }
  if (mistakes.size() != before) return std::nullopt;
  return items;
}

}  // namespace mso
