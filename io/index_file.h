// The .idx file beside a shard: found, checked against the tar, and made where it is missing.
#pragma once

#include <filesystem>
#include <memory>

#include "io/shard_index.h"

namespace mso {

// "a/shard-000000.tar" → "a/shard-000000.idx".
std::filesystem::path index_path(const std::filesystem::path& tar);

// The index of a shard: the .idx beside it, mapped, when it fits the tar (the same size and modification time; or, where
// the time differs, as after a copy, or was too young to be trusted when the index was made, the same fingerprint), else made anew by reading the tar's headers and stored
// beside it (written beside and renamed, under a lock on the tar so that several processes do it once). In a directory
// that cannot be written the index stays in memory and a note is logged. Error (kBadData) for a file that is no tar.
std::shared_ptr<const ShardIndex> load_or_build_index(const std::filesystem::path& tar, double lock_deadline_s = 600);

// The same where no video or sound may be left uncounted because of its size (TarIndexLimits::media_bytes): an index that
// has such ones is made anew, each of them read whole.
std::shared_ptr<const ShardIndex> count_media_in_index(const std::filesystem::path& tar, double lock_deadline_s = 600);

// An index made anew by reading the tar, in memory alone: for an .idx that turns out to be damaged while it is in use.
std::shared_ptr<const ShardIndex> rebuild_index(const std::filesystem::path& tar);

}  // namespace mso
