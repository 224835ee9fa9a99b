#include "io/mixture.h"

#include <filesystem>

#include "base/error.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

// Samples of each entry of data.path: their ids follow each other in the order of the entries.
std::vector<uint64_t> samples_of_entries(const Dataset& data, const std::vector<std::string>& entries) {
  std::vector<uint64_t> counts(entries.size(), 0);
  size_t at = 0;
  for (uint32_t shard = 0; shard < data.shard_count(); ++shard) {
    const fs::path& path = data.shard_path(shard);
    const auto holds = [&](const std::string& entry) {
      std::error_code ignored;
      const fs::path place = local_path(entry, data.storage().options().nvme);
      return path == place || fs::equivalent(path.parent_path(), place, ignored);
    };
    while (at < entries.size() && !holds(entries[at])) ++at;
    if (at == entries.size()) break;  // cannot be: shards come in the order of the entries
    counts[at] += data.shard_index(shard).size();
  }
  return counts;
}

}  // namespace

std::vector<MixturePart> mixture_parts(const Dataset& data, const std::vector<std::string>& paths, const std::vector<int64_t>& weights) {
  const std::vector<uint64_t> sizes = samples_of_entries(data, paths);
  if (sizes.size() != weights.size())
    throw Error("data.weights does not fit data.path",
                std::to_string(weights.size()) + " weights for " + std::to_string(sizes.size()) + " paths",
                "one whole number for each path", ExitCode::kBadUsage);
  std::vector<MixturePart> parts;
  uint64_t first = 0;
  for (size_t i = 0; i < sizes.size(); first += sizes[i++])
    parts.push_back({first, sizes[i], static_cast<uint64_t>(weights[i])});
  return parts;
}

}  // namespace mso
