#include "io/mov_header.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "io/media_input.h"

namespace mso {
namespace {

class Boxes {
 public:
  Boxes(const MediaBytes& bytes, MovLook* look) : bytes_(bytes), look_(look) {}

  // Walks boxes in [begin, end); into those that contain sample tables. False: stop.
  bool walk(uint64_t begin, uint64_t end, int depth) {
    for (uint64_t at = begin; at + 8 <= end && --boxes_left_ > 0;) {
      std::array<uint8_t, 32> head;
      if (!read(at, head, std::min<uint64_t>(head.size(), end - at))) return false;
      uint64_t size = u32(head, 0), header = 8;
      const std::string_view type(reinterpret_cast<const char*>(head.data()) + 4, 4);
      if (size == 1 && at + 16 <= end) {
        size = u32(head, 8) << 32 | u32(head, 12);
        header = 16;
      } else if (size == 0) {
        size = end - at;
      }
      if (size < header) return false;
      const uint64_t stop = size > end - at ? end : at + size, inside = at + header;
      if (type == "moof" || type == "mvex") look_->fragmented = true;
      if (depth < 8 && (type == "moov" || type == "trak" || type == "mdia" || type == "minf" || type == "stbl")) {
        if (!walk(inside, stop, depth + 1)) return false;
      } else if (type == "stsz" && inside + 12 <= stop) {
        // One size for all samples: the table itself takes no room, so that any count fits the box.
        const uint64_t each = u32(head, header + 4), count = u32(head, header + 8);
        if (each > 0 && count > bytes_.size / each) {
          look_->impossible = std::to_string(count) + " samples of " + std::to_string(each) + " bytes";
          return false;
        }
      }
      at = stop;
    }
    return true;
  }

 private:
  bool read(uint64_t at, std::array<uint8_t, 32>& to, uint64_t size) const {
    to.fill(0);
    for (uint64_t got = 0; got < size;) {
      const size_t n = bytes_.read(at + got, to.data() + got, static_cast<size_t>(size - got));
      if (n == 0) return false;
      got += n;
    }
    return true;
  }
  static uint64_t u32(const std::array<uint8_t, 32>& from, uint64_t at) {
    uint64_t v = 0;
    for (uint64_t i = 0; i < 4; ++i) v = v << 8 | from[at + i];
    return v;
  }

  const MediaBytes& bytes_;
  MovLook* look_;
  int boxes_left_ = 100000;
};

}  // namespace

MovLook look_at_mov(const MediaBytes& bytes) {
  MovLook look;
  std::array<char, 8> head;
  if (bytes.size < 8 || bytes.read(0, head.data(), 8) != 8) return look;
  const std::string_view type(head.data() + 4, 4);
  // Any of the boxes a file of this kind begins with.
  for (const char* first : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot", "styp"}) look.is_mov |= type == first;
  if (look.is_mov) Boxes(bytes, &look).walk(0, bytes.size, 0);
  return look;
}

}  // namespace mso
