// What the container of a video or sound says of it, for the index: read from the header, nothing decoded for it.
#pragma once

#include <cstdint>

#include "io/media_input.h"
#include "io/shard_index.h"

namespace mso {

// `kind`: kHasVideo or kHasAudio. Never throws for what is in the file: a header that cannot be read, or no stream of the
// kind, gives kMediaUnreadable.
// - MP4 and QuickTime: frames are counted in the sample table, edit lists applied, those behind the file's end left out.
// - Others: the packets are read and counted where the file has at most `most_bytes`, else kMediaNotCounted. Sounds only
//   where the header does not tell their length.
// - Durations are those that ffprobe shows of the stream; where packets are counted, from the first frame's time to the
//   end of the last.
MediaFactsDraft read_media_facts(const MediaBytes& bytes, uint8_t kind, uint64_t most_bytes);

}  // namespace mso
