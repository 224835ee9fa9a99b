// dataset.json, the list of shards that `mso data pack` leaves beside them, so that a shard that went missing or was
// changed is noticed instead of trained without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mso {

inline constexpr const char* kDatasetManifest = "dataset.json";

struct ListedShard {
  std::string name;  // "shard-000000.tar"
  // Nothing: the list is of an early version, which wrote the number of shards alone.
  std::optional<uint64_t> bytes, samples;
};

// The list in `folder`; nothing where there is none, or one that is not of `mso data pack` (any WebDataset may have a
// file of this name). Error (kBadData) where it is ours and damaged.
std::optional<std::vector<ListedShard>> read_dataset_manifest(const std::filesystem::path& folder);

// Looks at names and sizes alone. Error (kBadData) naming every shard of the list that is missing or has another size;
// shards that are not in the list are named in a warning.
void check_listed_shards(const std::filesystem::path& folder, const std::vector<ListedShard>& listed,
                         const std::vector<std::filesystem::path>& found);

// Error (kBadData) naming the shard where it is in the list with another number of samples.
void check_listed_samples(const std::vector<ListedShard>& listed, const std::filesystem::path& shard, uint64_t samples);

}  // namespace mso
