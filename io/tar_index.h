// Reads the headers of a tar shard (ustar, pax, GNU long names; by libarchive) into an IndexDraft.
#pragma once

#include <filesystem>

#include "io/shard_index.h"

namespace mso {

// Limits against hostile archives; beyond them the shard is refused with an Error.
struct TarIndexLimits {
  uint64_t members = 16u << 20;            // of the whole archive
  uint64_t members_of_sample = 256;
  uint64_t path_bytes = 4096;              // of one member
  uint64_t text_bytes = 1u << 20;          // caption members up to this are read to count code points
  uint64_t json_bytes = 1u << 22;          // .json members up to this are read for category, sources and conversations
  int picture_side = 65535;                // pixels
  // Videos and sounds up to this are read whole where their header does not tell the frames or the length.
  uint64_t media_bytes = 8u << 20;
};

// What becomes of odd archives:
// - members of a sample that are not adjacent are joined by key (flag kSampleMerged); WebDataset would give two halves;
// - the same key and extension twice: kSampleDuplicateMember (unusable);
// - hard links inside the archive are followed; other links and sparse files: kSampleBadMember (unusable);
// - an archive that is cut, or ends without its end mark: samples before the cut are whole, the last one is
//   kSampleTruncated (unusable), since members may be missing behind it.
// Error (kBadData) where not even the first header is a tar's, or a limit is passed.
IndexDraft build_index(const std::filesystem::path& tar, const TarIndexLimits& limits = {});

}  // namespace mso
