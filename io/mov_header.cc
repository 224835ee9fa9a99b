#include "io/mov_header.h"

#include <cstdint>
#include <string_view>

namespace mso {
namespace {

class Boxes {
 public:
  explicit Boxes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Walks boxes in [begin, end); into those that contain sample tables.
  std::string check(uint64_t begin, uint64_t end, int depth) {
    for (uint64_t at = begin; at + 8 <= end && --boxes_left_ > 0;) {
      uint64_t size = u32(at), header = 8;
      const std::string_view type(reinterpret_cast<const char*>(bytes_.data()) + at + 4, 4);
      if (size == 1 && at + 16 <= end) {
        size = u64(at + 8);
        header = 16;
      } else if (size == 0) {
        size = end - at;
      }
      if (size < header) return "";
      const uint64_t stop = size > end - at ? end : at + size, inside = at + header;
      if (depth < 8 &&
          (type == "moov" || type == "trak" || type == "mdia" || type == "minf" || type == "stbl")) {
        if (std::string why = check(inside, stop, depth + 1); !why.empty()) return why;
      } else if (type == "stsz" && inside + 12 <= stop) {
        // One size for all samples: the table itself takes no room, so that any count fits the box.
        const uint64_t each = u32(inside + 4), count = u32(inside + 8);
        if (each > 0 && count > bytes_.size() / each)
          return std::to_string(count) + " samples of " + std::to_string(each) + " bytes";
      }
      at = stop;
    }
    return "";
  }

 private:
  uint64_t u32(uint64_t at) const {
    uint64_t v = 0;
    for (int i = 0; i < 4; ++i) v = v << 8 | static_cast<uint8_t>(bytes_[at + i]);
    return v;
  }
  uint64_t u64(uint64_t at) const { return u32(at) << 32 | u32(at + 4); }

  std::span<const std::byte> bytes_;
  int boxes_left_ = 100000;
};

}  // namespace

std::string impossible_mov(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return "";
  const std::string_view type(reinterpret_cast<const char*>(bytes.data()) + 4, 4);
  // Any of the boxes a file of this kind begins with.
  for (const char* first : {"ftyp", "moov", "mdat", "free", "skip", "wide", "pnot"})
    if (type == first) return Boxes(bytes).check(0, bytes.size(), 0);
  return "";
}

}  // namespace mso
