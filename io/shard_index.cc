#include "io/shard_index.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace mso {
namespace {

constexpr std::array<std::string_view, 8> kPictureExtensions = {"jpg", "jpeg", "png", "webp",
                                                                "bmp", "gif",  "tif", "tiff"};

// Layout of an .idx file, all little endian:
//   header   magic[8] version u32 flags u32 tar_size u64 fingerprint u64 samples u64 members u64 string_bytes u64
//            checksum u64 (XXH3 of the whole file with these 8 bytes zero)
//   samples  [samples] × {key_offset u32, key_size u32, first_member u64, members u32, width u32, height u32,
//            text_bytes u32, text_code_points u32, flags u32}
//   members  [members] × {extension_offset u32, extension_size u32, offset u64, size u64}
//   strings
constexpr char kMagic[8] = {'M', 'S', 'O', 'I', 'D', 'X', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kNoEndMark = 1, kTrailingData = 2;
constexpr size_t kHeaderBytes = 64, kChecksumAt = 56, kSampleBytes = 40, kMemberBytes = 24;

template <typename T>
void put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {  // the caller checked the size
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
    at_ += sizeof(T);
    return value;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace

const ShardMember* ShardSample::find(std::string_view extension) const {
  for (const ShardMember& member : members)
    if (member.extension == extension) return &member;
  return nullptr;
}

const ShardMember* ShardSample::picture() const {
  for (std::string_view extension : kPictureExtensions)
    if (const ShardMember* member = find(extension)) return member;
  return nullptr;
}

bool is_picture_extension(std::string_view extension) {
  return std::find(kPictureExtensions.begin(), kPictureExtensions.end(), extension) != kPictureExtensions.end();
}

std::optional<KeyAndExtension> split_member_path(std::string_view path) {
  while (path.starts_with("./")) {
    path.remove_prefix(2);
    while (path.starts_with('/')) path.remove_prefix(1);
  }
  size_t base = path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1;
  std::string_view name = path.substr(base);
  size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  // WebDataset's meta files: a component that begins and ends with two underscores.
  for (size_t start = 0; start < path.size();) {
    size_t end = std::min(path.find('/', start), path.size());
    std::string_view component = path.substr(start, end - start);
    if (component.size() >= 4 && component.starts_with("__") && component.ends_with("__")) return {};
    start = end + 1;
  }
  KeyAndExtension result{std::string(path.substr(0, base + dot)), std::string(name.substr(dot + 1))};
  for (char& c : result.extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string ShardIndex::serialize() const {
  uint64_t member_count = 0;
  for (const ShardSample& sample : samples) member_count += sample.members.size();
  std::string out(kMagic, sizeof kMagic), strings;
  put<uint32_t>(out, kVersion);
  put<uint32_t>(out, (end_mark ? 0 : kNoEndMark) | (trailing_data ? kTrailingData : 0));
  put<uint64_t>(out, tar_size);
  put<uint64_t>(out, tar_fingerprint);
  put<uint64_t>(out, samples.size());
  put<uint64_t>(out, member_count);
  const size_t string_bytes_at = out.size();
  put<uint64_t>(out, 0);
  put<uint64_t>(out, 0);
  auto intern = [&strings](const std::string& text) {
    size_t at = strings.size();
    strings += text;
    if (strings.size() > UINT32_MAX) throw Error("index too large", "names of more than 4 GiB", "make smaller shards");
    return static_cast<uint32_t>(at);
  };
  uint64_t first_member = 0;
  for (const ShardSample& sample : samples) {
    put<uint32_t>(out, intern(sample.key));
    put<uint32_t>(out, static_cast<uint32_t>(sample.key.size()));
    put<uint64_t>(out, first_member);
    put<uint32_t>(out, static_cast<uint32_t>(sample.members.size()));
    put<uint32_t>(out, sample.picture_width);
    put<uint32_t>(out, sample.picture_height);
    put<uint32_t>(out, sample.text_bytes);
    put<uint32_t>(out, sample.text_code_points);
    put<uint32_t>(out, sample.flags);
    first_member += sample.members.size();
  }
  // Extensions repeat; the handful of different ones is stored once.
  std::vector<std::pair<std::string, uint32_t>> known;
  for (const ShardSample& sample : samples) {
    for (const ShardMember& member : sample.members) {
      auto at = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == member.extension; });
      uint32_t offset;
      if (at != known.end()) {
        offset = at->second;
      } else {
        offset = intern(member.extension);
        if (known.size() < 64) known.emplace_back(member.extension, offset);
      }
      put<uint32_t>(out, offset);
      put<uint32_t>(out, static_cast<uint32_t>(member.extension.size()));
      put<uint64_t>(out, member.offset);
      put<uint64_t>(out, member.size);
    }
  }
  out += strings;
  std::string size_text;
  put<uint64_t>(size_text, strings.size());
  out.replace(string_bytes_at, 8, size_text);
  std::string checksum;
  put<uint64_t>(checksum, hash64(out));
  out.replace(kChecksumAt, 8, checksum);
  return out;
}

ShardIndex ShardIndex::parse(std::string_view bytes, const std::string& where) {
  auto refuse = [&where](const char* what) {
    return Error("damaged shard index", where + ": " + what, "delete it; it is made anew at the next use",
                 ExitCode::kBadData);
  };
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    throw refuse("not an index file");
  Reader head(bytes.substr(sizeof kMagic));
  const uint32_t version = head.get<uint32_t>();
  if (version != kVersion) throw refuse("written by another version");
  const uint32_t flags = head.get<uint32_t>();
  ShardIndex index;
  index.end_mark = !(flags & kNoEndMark);
  index.trailing_data = flags & kTrailingData;
  index.tar_size = head.get<uint64_t>();
  index.tar_fingerprint = head.get<uint64_t>();
  const uint64_t sample_count = head.get<uint64_t>(), member_count = head.get<uint64_t>();
  const uint64_t string_bytes = head.get<uint64_t>(), checksum = head.get<uint64_t>();
  std::string zeroed(bytes.substr(0, kHeaderBytes));
  std::fill_n(zeroed.begin() + kChecksumAt, 8, '\0');
  {
    Hasher hasher;
    hasher.update(zeroed.data(), zeroed.size());
    hasher.update(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes);
    if (hasher.digest() != checksum) throw refuse("wrong checksum");
  }
  // The checksum is no protection against malice, so every number is checked all the same.
  const uint64_t rest = bytes.size() - kHeaderBytes;
  if (sample_count > rest / kSampleBytes || member_count > rest / kMemberBytes || string_bytes > rest ||
      sample_count * kSampleBytes + member_count * kMemberBytes + string_bytes != rest)
    throw refuse("counts do not fit its size");
  std::string_view members = bytes.substr(kHeaderBytes + sample_count * kSampleBytes);
  std::string_view strings = bytes.substr(bytes.size() - string_bytes);
  Reader sample_reader(bytes.substr(kHeaderBytes)), member_reader(members);
  auto text = [&](uint32_t offset, uint32_t size) {
    if (offset > strings.size() || size > strings.size() - offset) throw refuse("name outside the file");
    if (size > 4096) throw refuse("name too long");
    return std::string(strings.substr(offset, size));
  };
  uint64_t members_seen = 0;
  index.samples.reserve(sample_count);
  for (uint64_t i = 0; i < sample_count; ++i) {
    ShardSample sample;
    const uint32_t key_offset = sample_reader.get<uint32_t>(), key_size = sample_reader.get<uint32_t>();
    sample.key = text(key_offset, key_size);
    if (sample_reader.get<uint64_t>() != members_seen) throw refuse("members out of order");
    const uint32_t count = sample_reader.get<uint32_t>();
    if (count > member_count - members_seen) throw refuse("more members than there are");
    sample.picture_width = sample_reader.get<uint32_t>();
    sample.picture_height = sample_reader.get<uint32_t>();
    sample.text_bytes = sample_reader.get<uint32_t>();
    sample.text_code_points = sample_reader.get<uint32_t>();
    sample.flags = sample_reader.get<uint32_t>();
    sample.members.reserve(count);
    for (uint32_t k = 0; k < count; ++k) {
      ShardMember member;
      const uint32_t offset = member_reader.get<uint32_t>(), size = member_reader.get<uint32_t>();
      member.extension = text(offset, size);
      member.offset = member_reader.get<uint64_t>();
      member.size = member_reader.get<uint64_t>();
      if (member.offset > index.tar_size || member.size > index.tar_size - member.offset)
        throw refuse("member outside the archive");
      sample.members.push_back(std::move(member));
    }
    members_seen += count;
    index.samples.push_back(std::move(sample));
  }
  if (members_seen != member_count) throw refuse("members of no sample");
  return index;
}

uint64_t fingerprint_tar(int fd, uint64_t size, const std::filesystem::path& path) {
  constexpr uint64_t kStretch = 16384;
  Hasher hasher;
  hasher.update(&size, sizeof size);
  std::vector<char> buffer(kStretch);
  for (uint64_t at : {uint64_t{0}, size > kStretch ? (size - kStretch) / 2 : 0, size > kStretch ? size - kStretch : 0}) {
    uint64_t count = std::min(kStretch, size - at);
    pread_all(fd, buffer.data(), count, at, path);
    hasher.update(buffer.data(), count);
  }
  return hasher.digest();
}

}  // namespace mso
