// What the packets of a video stream tell about its frames without decoding: how many, when shown, from which
// keyframe each can be decoded. Pure functions on plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace mso {

inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();  // AV_NOPTS_VALUE

// One packet, in the order of decoding. Times in the stream's time base.
struct PacketFacts {
  int64_t pts = kNoTime, duration = 0;
  bool key = false;
  bool discarded = false;  // by an edit list: decoded, never shown
  bool hidden = false;     // makes no frame of its own (VP8's and VP9's alternate references)
};

struct FrameTable {
  // Empty, and `unreliable` says why, where only decoding tells: packets without times or with equal ones,
  // frames that come before the first keyframe.
  std::vector<int64_t> pts;     // [frames] increasing
  std::vector<int64_t> packet;  // [frames] that holds it
  int64_t end = 0;              // when the last frame ends
  int reorder = 0;              // the most frames that are decoded before one and shown after it
  std::string unreliable;
};

FrameTable make_frame_table(std::span<const PacketFacts> packets);

// Packets first … last are decoded in a row, then the decoder is emptied.
struct DecodeSegment {
  int64_t first = 0, last = 0;
  bool operator==(const DecodeSegment&) const = default;
};

// The least to decode for `frames` (increasing): each from the newest keyframe that is neither decoded nor
// shown after it. `jump`: keyframes are to be trusted; else all from the first packet on.
std::vector<DecodeSegment> plan_segments(std::span<const PacketFacts> packets, const FrameTable& table,
                                         std::span<const int64_t> frames, bool jump);

// Where decoding of the whole stream begins: the first keyframe, or packet 0 where none is marked. What is
// decoded after that keyframe but shown before it refers to frames that are not there.
int64_t first_decodable(std::span<const PacketFacts> packets);
inline bool leads(const PacketFacts& packet, const PacketFacts& key) {
  return packet.pts != kNoTime && key.pts != kNoTime && key.key && packet.pts < key.pts;
}

}  // namespace mso
