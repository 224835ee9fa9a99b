#include "io/known_bad.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

namespace mso {

std::string to_json_line(const KnownBad& bad, uint64_t id) {
  nlohmann::ordered_json json = {{"id", id}, {"shard", bad.shard}, {"key", bad.key}, {"reason", bad.reason}};
  if (!bad.member.empty()) json["member"] = bad.member;
  json["detail"] = bad.detail;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<KnownBad> read_known_bad(const std::filesystem::path& list) {
  const std::string content = read_file(list);
  std::vector<KnownBad> all;
  size_t start = 0;
  for (int number = 1; start < content.size(); ++number) {
    const size_t end = std::min(content.find('\n', start), content.size());
    const std::string_view line = std::string_view(content).substr(start, end - start);
    start = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const auto json = parse_shallow_json(line);
      KnownBad& bad = all.emplace_back();
      // Lists may carry the shard's whole path.
      bad.shard = std::filesystem::path(json.at("shard").get<std::string>()).filename().string();
      json.at("key").get_to(bad.key);
      json.at("reason").get_to(bad.reason);
      bad.detail = json.value("detail", "");
      bad.member = json.value("member", "");
    } catch (const nlohmann::json::exception& error) {
      throw Error("not a list of bad samples", list.string() + ":" + std::to_string(number) + ": " + error.what(),
                  "make one with `mso data verify --list`", ExitCode::kBadData);
    }
  }
  return all;
}

std::map<uint64_t, KnownBad> find_known_bad(const Dataset& dataset, const std::vector<KnownBad>& list,
                                            const std::vector<Modality>& used, uint64_t* unknown) {
  std::unordered_map<std::string, std::unordered_map<std::string_view, const KnownBad*>> wanted;  // shard → key
  for (const KnownBad& bad : list) {
    const auto media = media_of_extension(bad.member);
    if (media && std::ranges::find(used, *media) == used.end()) continue;
    wanted[bad.shard].emplace(bad.key, &bad);
  }
  std::map<uint64_t, KnownBad> found;
  std::unordered_map<std::string, std::unordered_set<std::string_view>> seen;
  uint64_t id = 0;
  for (uint32_t k = 0; k < dataset.shard_count(); ++k) {
    const uint64_t start = id;
    id += dataset.shard_index(k).size();
    const auto of_shard = wanted.find(dataset.shard_path(k).filename().string());
    if (of_shard == wanted.end()) continue;
    for (uint64_t i = start; i < id; ++i) {
      const auto at = of_shard->second.find(dataset.sample(i).key);
      if (at == of_shard->second.end()) continue;
      found.emplace(i, *at->second);
      seen[of_shard->first].insert(at->first);
    }
  }
  if (unknown) {
    *unknown = 0;
    for (const auto& [shard, keys] : wanted) *unknown += keys.size();
    for (const auto& [shard, keys] : seen) *unknown -= keys.size();
  }
  return found;
}

}  // namespace mso
