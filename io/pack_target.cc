#include "io/pack_target.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "io/dataset_manifest.h"
#include "io/neighbour_file.h"
#include "node/cpu_list.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

bool is_shard_file(const std::string& name) {
  if (name == kDatasetManifest || name == kNeighbourFile) return true;
  if (name.size() != 16 || !name.starts_with("shard-")) return false;
  if (!name.ends_with(".tar") && !name.ends_with(".idx")) return false;
  return std::all_of(name.begin() + 6, name.begin() + 12, [](char c) { return c >= '0' && c <= '9'; });
}

// Error unless the folder is missing or holds nothing but what packing writes.
void check_own_folder(const fs::path& folder, bool may_be_unfinished) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return;
  if (!fs::is_directory(folder, error))
    throw Error("would overwrite", folder.string() + " is no folder", "choose another name", ExitCode::kBadUsage);
  bool any = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    any = true;
    const size_t tmp = name.find(".tmp");
    if (may_be_unfinished && tmp != std::string::npos) name.resize(tmp);
    if (!is_shard_file(name))
      throw Error("would overwrite a folder with other files in it", entry.path().string(),
                  "choose another folder, or remove what is in this one", ExitCode::kBadUsage);
  }
  if (any && !may_be_unfinished &&
      (!fs::exists(folder / kDatasetManifest, error) ||
       read_file(folder / kDatasetManifest, 64 << 20).find("\"made_by\": \"mso data pack\"") == std::string::npos))
    throw Error("would overwrite shards that were not made by `mso data pack`", folder.string(),
                "choose another folder, or remove this one", ExitCode::kBadUsage);
}

fs::path checked(const fs::path& given, const ShardLimits& limits) {
  if (limits.samples == 0 || limits.bytes == 0)
    throw Error("a shard must hold at least one sample", "limits of a shard", "", ExitCode::kBadUsage);
  fs::path out = given.lexically_normal();
  if (!out.has_filename()) out = out.parent_path();  // "shards/"
  if (out.empty() || out == "." || out == "..")
    throw Error("cannot replace this folder", given.string(), "give the name of a new one", ExitCode::kBadUsage);
  check_own_folder(out, false);
  return out;
}

}  // namespace

PackTarget::PackTarget(const fs::path& out, const ShardLimits& limits)
    : out_(checked(out, limits)), partial_(std::make_unique<PartialFolder>(out_, [](std::string name) {
        if (const size_t tmp = name.find(".tmp"); tmp != std::string::npos) name.resize(tmp);
        return is_shard_file(name);
      })),
      writer_(std::make_unique<ShardWriter>(partial_->path(), limits)) {}

void PackTarget::publish(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after) {
  writer_->finish();
  nlohmann::ordered_json manifest;
  manifest["made_by"] = "mso data pack";
  manifest.update(before);
  manifest["samples"] = writer_->samples();
  manifest["shards"] = writer_->shards();
  manifest["files"] = nlohmann::ordered_json::array();
  for (const ListedShard& shard : writer_->closed())
    manifest["files"].push_back({{"name", shard.name}, {"bytes", *shard.bytes}, {"samples", *shard.samples}});
  manifest.update(after);
  write_file_durably(partial_->path() / kDatasetManifest, manifest.dump(2) + "\n");

  // A crash between the two renames leaves the old shards under .old and the new ones under .partial: nothing is lost.
  fs::path old = out_;
  old += ".old";
  std::error_code error;
  if (fs::exists(out_, error)) {
    check_own_folder(old, true);
    fs::remove_all(old);
    rename_path(out_, old);
  }
  partial_->publish();
  fs::remove_all(old, error);
}

size_t pack_threads(int wanted) { return static_cast<size_t>(wanted > 0 ? wanted : usable_cores()); }

}  // namespace mso
