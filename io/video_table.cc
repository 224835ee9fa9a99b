#include "io/video_table.h"

#include <algorithm>
#include <numeric>

namespace mso {

int64_t first_decodable(std::span<const PacketFacts> packets) {
  const auto key = std::find_if(packets.begin(), packets.end(), [](const PacketFacts& p) { return p.key; });
  return key == packets.end() ? 0 : key - packets.begin();
}

FrameTable make_frame_table(std::span<const PacketFacts> packets) {
  FrameTable table;
  const int64_t n = static_cast<int64_t>(packets.size());
  // How far packets are out of order, for decoders that must know beforehand. Codecs allow 16.
  constexpr int64_t kFarthest = 32;
  for (int64_t i = 0; i < n; ++i) {
    int later = 0;
    for (int64_t j = std::max<int64_t>(0, i - kFarthest); j < i; ++j)
      later += packets[i].pts != kNoTime && packets[j].pts > packets[i].pts;
    table.reorder = std::max(table.reorder, later);
  }

  for (int64_t i = 0; i < n; ++i)
    if (!packets[i].discarded && !packets[i].hidden) table.packet.push_back(i);
  const auto give_up = [&](const char* why) {
    table.packet.clear();
    table.pts.clear();
    table.unreliable = why;
    return table;
  };
  if (table.packet.empty()) return give_up("no packet holds a frame");
  for (const int64_t i : table.packet)
    if (packets[i].pts == kNoTime) return give_up("packets without a time");
  std::sort(table.packet.begin(), table.packet.end(), [&](int64_t a, int64_t b) {
    return std::pair(packets[a].pts, a) < std::pair(packets[b].pts, b);
  });
  table.end = std::numeric_limits<int64_t>::min();
  for (const int64_t i : table.packet) {
    if (!table.pts.empty() && table.pts.back() == packets[i].pts) return give_up("two frames at one time");
    table.pts.push_back(packets[i].pts);
    int64_t end = packets[i].pts;
    if (packets[i].duration > 0 && __builtin_add_overflow(packets[i].pts, packets[i].duration, &end))
      return give_up("times out of range");
    table.end = std::max(table.end, end);
  }
  int64_t length;
  if (__builtin_sub_overflow(table.end, table.pts.front(), &length)) return give_up("times out of range");
  if (packets.front().key == false) return give_up("the stream begins without a keyframe");
  for (const int64_t i : table.packet)
    if (leads(packets[i], packets.front())) return give_up("frames before the first keyframe");
  return table;
}

std::vector<DecodeSegment> plan_segments(std::span<const PacketFacts> packets, const FrameTable& table,
                                         std::span<const int64_t> frames, bool jump) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < static_cast<int64_t>(packets.size()); ++i)
    if (packets[i].key && packets[i].pts != kNoTime) keys.push_back(i);
  std::vector<DecodeSegment> segments;
  for (const int64_t frame : frames) {
    const int64_t packet = table.packet[frame];
    int64_t start = 0;
    if (jump) {
      auto key = std::upper_bound(keys.begin(), keys.end(), packet);
      while (key != keys.begin()) {
        --key;
        if (packets[*key].pts <= packets[packet].pts) {
          start = *key;
          break;
        }
      }
    }
    if (segments.empty() || start > segments.back().last + 1) {
      segments.push_back({start, packet});
    } else {
      segments.back().first = std::min(segments.back().first, start);
      segments.back().last = std::max(segments.back().last, packet);
    }
  }
  return segments;
}

}  // namespace mso
