#include "io/dataset_manifest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMadeBy = "mso data pack";
constexpr const char* kHint =
    "restore it or pack again; to train on fewer shards, list their .tar files in data.path one by one";

std::string shard_name(uint64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, "shard-%06llu.tar", static_cast<unsigned long long>(number));
  return name;
}

}  // namespace

std::optional<std::vector<ListedShard>> read_dataset_manifest(const fs::path& folder) {
  const fs::path path = folder / kDatasetManifest;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const std::string text = read_file(path, uint64_t{64} << 20);
  try {
    const auto json = parse_shallow_json<nlohmann::json>(text);
    if (!json.is_object() || json.value("made_by", nlohmann::json()) != kMadeBy) return {};
    std::vector<ListedShard> listed;
    if (json.contains("files")) {
      for (const auto& file : json.at("files"))
        listed.push_back({file.at("name").get<std::string>(), file.at("bytes").get<uint64_t>(),
                          file.at("samples").get<uint64_t>()});
    } else {
      const uint64_t count = json.at("shards").get<uint64_t>();
      if (count > 1'000'000) throw Error("", "");
      for (uint64_t i = 0; i < count; ++i) listed.push_back({shard_name(i), {}, {}});
    }
    return listed;
  } catch (const std::exception&) {
    if (text.find(kMadeBy) == std::string::npos) return {};
    throw Error("the list of shards is damaged", path.string(),
                "restore the file, pack again, or remove it if the shards beside it are all there", ExitCode::kBadData);
  }
}

void check_listed_shards(const fs::path& folder, const std::vector<ListedShard>& listed,
                         const std::vector<fs::path>& found) {
  std::string wrong;
  size_t count = 0;
  auto note = [&](const std::string& text) {
    if (++count <= 20) wrong += (wrong.empty() ? "" : "; ") + text;
  };
  for (const ListedShard& shard : listed) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(folder / shard.name, error);
    if (error)
      note(shard.name + " is missing");
    else if (shard.bytes && bytes != *shard.bytes)
      note(shard.name + " has " + std::to_string(bytes) + " bytes instead of " + std::to_string(*shard.bytes));
  }
  if (count > 20) wrong += "; and " + std::to_string(count - 20) + " more";
  if (count > 0)
    throw Error("shards of the data set are missing or changed", folder.string() + ": " + wrong, kHint, ExitCode::kBadData);
  std::string extra;
  for (const fs::path& shard : found)
    if (std::ranges::find(listed, shard.filename().string(), &ListedShard::name) == listed.end())
      extra += (extra.empty() ? "" : ", ") + shard.filename().string();
  if (!extra.empty() && log_allowed("unlisted shards " + folder.string()))
    log_warn("{}: {} does not list {}, which is trained on all the same", folder.string(), kDatasetManifest, extra);
}

void check_listed_samples(const std::vector<ListedShard>& listed, const fs::path& shard, uint64_t samples) {
  const auto at = std::ranges::find(listed, shard.filename().string(), &ListedShard::name);
  if (at == listed.end() || !at->samples || *at->samples == samples) return;
  throw Error("a shard of the data set was changed",
              shard.string() + ": " + std::to_string(samples) + " samples instead of " + std::to_string(*at->samples),
              kHint, ExitCode::kBadData);
}

}  // namespace mso
