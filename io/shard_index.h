// The index beside a shard (`shard-000000.tar` → `shard-000000.idx`): which samples the tar holds, where their members
// lie, and what planning needs to know about them without decoding: picture size and caption length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// Flags of a sample, set while indexing. The kUnusable ones mean: never train on it, write it to the ledger instead.
enum SampleFlag : uint32_t {
  kSampleMerged = 1u << 0,            // its members do not stand side by side in the tar; joined by key here
  kSampleDuplicateMember = 1u << 1,   // two members with the same key and extension: which is right is unknown
  kSampleTruncated = 1u << 2,         // the archive ends inside or right behind it without an end mark
  kSampleBadMember = 1u << 3,         // a member is a link without target, sparse, or otherwise not plain data
  kSampleOddName = 1u << 4,           // a picture or caption behind a second dot ("a.b.jpg"): key and extension unclear
  kSampleSizeUnknown = 1u << 5,       // picture whose header does not tell its size (it may still decode)
  kSampleBadPictureSize = 1u << 6,    // the header tells a size of zero or beyond the limits
};
constexpr uint32_t kSampleUnusable = kSampleDuplicateMember | kSampleTruncated | kSampleBadMember | kSampleOddName;

// One file of a sample.
struct ShardMember {
  std::string extension;  // lower case, without the dot: "jpg", "txt", "seg.png"
  uint64_t offset = 0;    // of its first byte in the tar
  uint64_t size = 0;      // bytes
};

// All members whose path shares the key: the path up to the first dot of its last component (WebDataset's rule).
struct ShardSample {
  std::string key;
  std::vector<ShardMember> members;  // in the order of the tar
  uint32_t picture_width = 0, picture_height = 0;  // as stored, EXIF orientation applied; 0: no picture or unknown
  uint32_t text_bytes = 0;                         // of the .txt member, 0 without one
  uint32_t text_code_points = 0;
  uint32_t flags = 0;  // SampleFlag

  // nullptr where the sample has none.
  const ShardMember* find(std::string_view extension) const;
  // The picture that is trained on: the first of jpg, jpeg, png, webp, bmp, gif, tif, tiff that exists.
  const ShardMember* picture() const;
};

// True for the extensions picture() looks for.
bool is_picture_extension(std::string_view extension);

// Splits a tar path by WebDataset's rule: {"dir/name", "seg.png"} for "dir/name.seg.PNG". Nothing for what is no member
// of a sample: no dot, a name that begins with a dot, and `__meta__` files. A leading "./" is dropped.
struct KeyAndExtension {
  std::string key, extension;
};
std::optional<KeyAndExtension> split_member_path(std::string_view path);

struct ShardIndex {
  uint64_t tar_size = 0;         // bytes of the whole archive
  uint64_t tar_fingerprint = 0;  // fingerprint_tar() of it
  bool end_mark = true;          // false: the archive ends without its two zero blocks (truncated)
  bool trailing_data = false;    // something stands behind the end mark; it was not read
  std::vector<ShardSample> samples;

  // Bytes of an .idx file: magic, version, counts, XXH3 checksum, records, strings; little endian.
  std::string serialize() const;
  // Error (kBadData) naming `where` for anything but bytes that serialize() wrote: every count, length, offset and the
  // checksum are checked, so a hostile file can at most be refused.
  static ShardIndex parse(std::string_view bytes, const std::string& where);
};

// XXH3 of the size and three stretches of 16 KiB of the file (start, middle, end): notices a shard that was replaced
// by another of the same size without reading all of it.
uint64_t fingerprint_tar(int fd, uint64_t size, const std::filesystem::path& path);

}  // namespace mso
