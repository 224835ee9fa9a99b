// A list of samples known to be bad, as `mso data verify --list` writes and data.known_bad reads: JSON lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/dataset.h"
#include "io/modality.h"

namespace mso {

struct KnownBad {
  std::string shard, key;  // file name of the shard; sample ids change with the list of shards, these do not
  std::string reason, detail;
  std::string member;      // extension of the member that is broken; empty: not one alone
};

// One line, with the newline. `id` is for people.
std::string to_json_line(const KnownBad& bad, uint64_t id);
// All lines of a list. Error (kBadData) naming the line that is none.
std::vector<KnownBad> read_known_bad(const std::filesystem::path& list);

// The ids these have in `dataset`, for the loader to enter into the ledger without reading them. A sample whose broken
// member is of a kind that is not in `used` stays good: a damaged sound does not matter to a model that only sees.
// Entries of other data sets are left out; *unknown counts them.
std::map<uint64_t, KnownBad> find_known_bad(const Dataset& dataset, const std::vector<KnownBad>& list,
                                            const std::vector<Modality>& used, uint64_t* unknown = nullptr);

}  // namespace mso
