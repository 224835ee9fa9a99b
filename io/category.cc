#include "io/category.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace mso {
namespace {

constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr size_t kMaxCategory = 256;  // bytes of a name; longer ones are cut

std::string text_in_json(const Dataset& dataset, uint64_t id, const std::string& pointer) {
  const auto& sample = dataset.sample(id);
  const auto* member = sample.find("json");
  if (!member || member->size > kMaxJsonBytes) return {};
  try {
    const std::vector<std::byte> bytes = dataset.read(id, *member);
    const auto document = parse_shallow_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const nlohmann::json::json_pointer at(pointer);
    if (!document.contains(at) || !document.at(at).is_string()) return {};
    return document.at(at).get<std::string>().substr(0, kMaxCategory);
  } catch (const std::exception&) {  // `mso data verify` names it
    return {};
  }
}

}  // namespace

std::string first_folder(std::string_view path) {
  while (path.starts_with('/') || path.starts_with("./")) path.remove_prefix(path[0] == '/' ? 1 : 2);
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, std::min(slash, kMaxCategory)));
}

CategoryRule::CategoryRule(const std::string& rule) : rule_(rule) {
  if (rule == "auto") return;
  try {
    if (rule.empty() || rule[0] != '/') throw std::invalid_argument("no pointer");
    (void)nlohmann::json::json_pointer(rule);
  } catch (const std::exception&) {
    throw Error("wrong source of categories", "mdp.healing.category: " + rule,
                "auto, or a JSON pointer into the .json member such as /category", ExitCode::kBadUsage);
  }
}

std::string CategoryRule::of(const Dataset& dataset, uint64_t id) const {
  if (rule_ != "auto") return text_in_json(dataset, id, rule_);
  const std::string folder = first_folder(dataset.sample(id).key);
  // "animals" alone is a folder here: what stands in "category" is one, not a file.
  return folder.empty() ? first_folder(text_in_json(dataset, id, "/category") + "/") : folder;
}

}  // namespace mso
