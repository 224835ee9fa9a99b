#include "io/shard_index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr std::array<std::string_view, 8> kPictureExtensions = {"jpg", "jpeg", "png", "webp",
                                                                "bmp", "gif",  "tif", "tiff"};
constexpr std::array<std::string_view, 12> kVideoExtensions = {"mp4", "webm", "mkv", "mov", "avi", "m4v",
                                                               "mpg", "mpeg", "ogv", "flv", "ts",  "wmv"};
constexpr std::array<std::string_view, 11> kAudioExtensions = {"wav", "flac", "ogg", "opus", "mp3", "m4a",
                                                               "aac", "oga",  "aif", "aiff", "wma"};

// Layout of an .idx file, little endian; tables stand one behind the other in this order:
//   header    see Header; its last 8 bytes are XXH3 of those before them
//   blocks    [⌈samples / kBlock⌉] × SampleKindCounts; in the header's blocks_checksum, not in body_checksum
//   samples   [samples] × SampleRow
//   members   [members] × MemberRow, those of a sample side by side
//   media     [media] × MediaRow, those of a sample side by side
//   lineages  [lineages] × five numbers of labels: category, text, image, video, audio source
//   labels    [labels] × TextRow        (number 0 stands for "not known" and has no row; number k is row k - 1)
//   extensions [extensions] × TextRow
//   strings
static_assert(std::endian::native == std::endian::little, "rows are copied from the file as they stand");
constexpr char kMagic[8] = {'M', 'S', 'O', 'I', 'D', 'X', '\r', '\n'};
constexpr uint32_t kVersion = 5;
constexpr uint32_t kNoEndMark = 1, kTrailingData = 2, kConversations = 4, kUncountedMedia = 8;
constexpr uint32_t kMostTextBytes = 4096;

struct Header {
  char magic[8];
  uint32_t version, flags;
  uint64_t tar_size, tar_fingerprint;
  int64_t tar_changed_ns;
  uint64_t samples, members, media, lineages, labels, extensions, string_bytes;
  uint64_t body_checksum, blocks_checksum, header_checksum;
};
static_assert(sizeof(Header) == 120);
struct SampleRow {
  uint32_t first_member, key_offset;
  uint16_t key_size, members;
  uint16_t picture_width, picture_height;
  uint32_t text_bytes, text_code_points, flags;
  uint32_t lineage;      // number of a row plus 1; 0: none
  uint32_t first_media;  // row, where media_rows > 0
  uint16_t media_rows;
  uint8_t modalities, kind;
};
static_assert(sizeof(SampleRow) == 40);
struct MemberRow {
  uint64_t offset;
  uint64_t size_and_extension;  // size in the lower 40 bits
};
constexpr int kSizeBits = 40;
constexpr uint64_t kMostSize = (uint64_t{1} << kSizeBits) - 1, kMostExtensions = (uint64_t{1} << 24) - 1;
struct MediaRow {
  uint64_t duration_us;
  uint32_t codec;  // number of a label
  uint32_t width, height, frames;
  uint32_t rate;  // of video millihertz, of sound Hz
  uint16_t member, rotation, channels;
  uint8_t kind, flags;
  uint32_t reserved;
};
static_assert(sizeof(MediaRow) == 40);
struct LineageRow {
  uint32_t category, text, image, video, audio;
};
struct TextRow {
  uint32_t offset, size;
};

template <typename Row>
Row row(std::string_view table, uint64_t number) {  // the caller knows that it is there
  Row value;
  std::memcpy(&value, table.data() + number * sizeof(Row), sizeof(Row));
  return value;
}
template <typename Row>
void put(std::string& table, const Row& value) {
  table.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Text, size_t N>
const MemberOf<Text>* first_of(const SampleOf<Text>& sample, const std::array<std::string_view, N>& extensions) {
  for (std::string_view extension : extensions)
    if (const MemberOf<Text>* member = sample.find(extension)) return member;
  return nullptr;
}

template <size_t N>
bool one_of(const std::array<std::string_view, N>& list, std::string_view extension) {
  return std::find(list.begin(), list.end(), extension) != list.end();
}

SampleKind kind_of(const SampleDraft& sample) {
  SampleKind kind = !sample.find("txt") && sample.find("json") ? kKindJsonAlone : 0;
  for (const MemberDraft& member : sample.members) {
    const uint8_t held = modality_of_extension(member.extension);
    kind |= held == kHasImage ? kKindImage : held == kHasVideo ? kKindVideo : held == kHasAudio ? kKindAudio : 0;
  }
  return kind;
}

// The strings of an index that is being made; each different one of a table is stored once.
class Strings {
 public:
  uint32_t add(std::string_view text) {
    const size_t at = bytes_.size();
    bytes_ += text;
    if (bytes_.size() > UINT32_MAX) throw Error("index too large", "names of more than 4 GiB", "make smaller shards");
    return static_cast<uint32_t>(at);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};
class TextTable {
 public:
  explicit TextTable(Strings& strings) : strings_(strings) {}
  uint32_t number(const std::string& text) {  // from 0
    const auto [at, fresh] = known_.try_emplace(text, static_cast<uint32_t>(known_.size()));
    if (fresh) put(rows_, TextRow{strings_.add(text), static_cast<uint32_t>(text.size())});
    return at->second;
  }
  size_t size() const { return known_.size(); }
  const std::string& rows() const { return rows_; }

 private:
  Strings& strings_;
  std::map<std::string, uint32_t> known_;
  std::string rows_;
};

}  // namespace

template <typename Text>
const MemberOf<Text>* SampleOf<Text>::find(std::string_view extension) const {
  for (const MemberOf<Text>& member : members)
    if (member.extension == extension) return &member;
  return nullptr;
}
template <typename Text>
const MemberOf<Text>* SampleOf<Text>::picture() const {
  return first_of(*this, kPictureExtensions);
}
template <typename Text>
const MemberOf<Text>* SampleOf<Text>::video() const {
  return first_of(*this, kVideoExtensions);
}
template <typename Text>
const MemberOf<Text>* SampleOf<Text>::audio() const {
  return first_of(*this, kAudioExtensions);
}
template <typename Text>
const MediaFactsOf<Text>* SampleOf<Text>::facts(const MemberOf<Text>& member) const {
  const auto place = &member - members.data();
  for (const MediaFactsOf<Text>& known : media)
    if (known.member == place) return &known;
  return nullptr;
}
template struct SampleOf<std::string>;
template struct SampleOf<std::string_view>;

bool is_picture_extension(std::string_view extension) { return one_of(kPictureExtensions, extension); }
bool is_video_extension(std::string_view extension) { return one_of(kVideoExtensions, extension); }
bool is_audio_extension(std::string_view extension) { return one_of(kAudioExtensions, extension); }

uint8_t modality_of_extension(std::string_view extension) {
  if (extension == "txt" || extension == "json") return kHasText;
  if (is_picture_extension(extension)) return kHasImage;
  if (is_video_extension(extension)) return kHasVideo;
  if (is_audio_extension(extension)) return kHasAudio;
  // "image", "image12", "image3.png"
  const std::string_view name = extension.substr(0, extension.find('.'));
  const size_t digits = name.find_first_of("0123456789");
  if (digits == std::string_view::npos && name != extension) return 0;
  if (digits != std::string_view::npos && name.find_first_not_of("0123456789", digits) != std::string_view::npos) return 0;
  const std::string_view kind = name.substr(0, digits);
  return kind == "image" ? kHasImage : kind == "video" ? kHasVideo : kind == "audio" ? kHasAudio : 0;
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
  return KeyAndExtension{std::string(path.substr(0, base + dot)), lower_ascii(std::string(name.substr(dot + 1)))};
}

std::string IndexDraft::serialize() const {
  Strings strings;
  TextTable labels(strings), extensions(strings);
  std::map<Lineage, uint32_t> lineages;
  std::string sample_rows, member_rows, media_rows, lineage_rows;
  std::vector<SampleKindCounts> block_rows;
  uint64_t members = 0, media = 0, numbered = 0;
  bool uncounted = false;
  auto number_of_label = [&](const std::string& text) { return text.empty() ? 0 : labels.number(text) + 1; };
  for (const SampleDraft& sample : samples) {
    SampleRow out{};
    if (members > UINT32_MAX || sample.members.size() > UINT16_MAX || sample.key.size() > kMostTextBytes)
      throw Error("index too large", "sample " + sample.key.substr(0, 200), "make smaller shards");
    out.first_member = static_cast<uint32_t>(members);
    out.key_offset = strings.add(sample.key);
    out.key_size = static_cast<uint16_t>(sample.key.size());
    out.members = static_cast<uint16_t>(sample.members.size());
    out.picture_width = static_cast<uint16_t>(std::min<uint32_t>(sample.picture_width, UINT16_MAX));
    out.picture_height = static_cast<uint16_t>(std::min<uint32_t>(sample.picture_height, UINT16_MAX));
    out.text_bytes = sample.text_bytes;
    out.text_code_points = sample.text_code_points;
    out.flags = sample.flags;
    out.modalities = sample.modalities;
    out.kind = kind_of(sample);
    if (numbered++ % ShardIndex::kBlock == 0) block_rows.emplace_back();
    ++block_rows.back()[out.kind];
    if (sample.lineage != Lineage{}) {
      const Lineage& l = sample.lineage;
      const auto [at, fresh] = lineages.try_emplace(l, static_cast<uint32_t>(lineages.size() + 1));
      if (fresh)
        put(lineage_rows, LineageRow{number_of_label(l.category), number_of_label(l.text_source), number_of_label(l.image_source),
                                     number_of_label(l.video_source), number_of_label(l.audio_source)});
      out.lineage = at->second;
    }
    if (media + sample.media.size() > UINT32_MAX || sample.media.size() > UINT16_MAX)
      throw Error("index too large", "sample " + sample.key.substr(0, 200), "make smaller shards");
    out.first_media = sample.media.empty() ? 0 : static_cast<uint32_t>(media);
    out.media_rows = static_cast<uint16_t>(sample.media.size());
    for (const MediaFactsDraft& m : sample.media) {
      put(media_rows, MediaRow{m.duration_us, number_of_label(m.codec), m.width, m.height, m.frames,
                               m.kind == kHasVideo ? m.millihertz : m.sample_rate, m.member, m.rotation, m.channels, m.kind,
                               m.flags, 0});
      uncounted |= (m.flags & kMediaNotCounted) != 0;
      ++media;
    }
    put(sample_rows, out);
    for (const MemberDraft& member : sample.members) {
      const uint64_t extension = extensions.number(member.extension);
      if (member.size > kMostSize || extension > kMostExtensions || member.extension.size() > kMostTextBytes)
        throw Error("index too large", "member " + sample.key.substr(0, 200) + "." + member.extension.substr(0, 200),
                    "members hold less than a TiB and have at most 16 million different extensions");
      put(member_rows, MemberRow{member.offset, member.size | extension << kSizeBits});
      ++members;
    }
  }
  const std::string body =
      sample_rows + member_rows + media_rows + lineage_rows + labels.rows() + extensions.rows() + strings.bytes();
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.flags = (end_mark ? 0 : kNoEndMark) | (trailing_data ? kTrailingData : 0) | (uncounted ? kUncountedMedia : 0);
  for (const SampleDraft& sample : samples)
    if (sample.flags & kSampleConversation) header.flags |= kConversations;
  header.tar_size = tar_size;
  header.tar_fingerprint = tar_fingerprint;
  header.tar_changed_ns = tar_changed_ns;
  header.samples = samples.size();
  header.members = members;
  header.media = media;
  header.lineages = lineages.size();
  header.labels = labels.size();
  header.extensions = extensions.size();
  header.string_bytes = strings.bytes().size();
  header.body_checksum = hash64(body);
  header.blocks_checksum = hash64(block_rows.data(), block_rows.size() * sizeof(SampleKindCounts));
  header.header_checksum = hash64(&header, offsetof(Header, header_checksum));
  std::string out;
  out.reserve(sizeof header + block_rows.size() * sizeof(SampleKindCounts) + body.size());
  put(out, header);
  for (const SampleKindCounts& counts : block_rows) put(out, counts);
  return out + body;
}

std::shared_ptr<const ShardIndex> ShardIndex::open(const std::filesystem::path& path) {
  std::shared_ptr<ShardIndex> index(new ShardIndex());
  index->where_ = path.string();
  FileDescriptor fd = open_file(path, O_RDONLY);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot stat", path.string());
  if (!S_ISREG(info.st_mode)) index->refuse("it is no regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size < sizeof(Header)) index->refuse("not an index file");
  // A file that is replaced by a new one (all that mso does) stays as it is below this mapping.
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapping != MAP_FAILED) {
    index->mapping_ = mapping;
    index->bytes_ = {static_cast<const char*>(mapping), size};
  } else {
    index->owned_ = read_file(path);
    index->bytes_ = index->owned_;
  }
  index->read_header();
  return index;
}

std::shared_ptr<const ShardIndex> ShardIndex::from_bytes(std::string bytes, const std::string& where) {
  std::shared_ptr<ShardIndex> index(new ShardIndex());
  index->where_ = where;
  index->owned_ = std::move(bytes);
  index->bytes_ = index->owned_;
  index->read_header();
  return index;
}

ShardIndex::~ShardIndex() {
  if (mapping_) ::munmap(mapping_, bytes_.size());
}

void ShardIndex::refuse(const char* what) const {
  throw Error("damaged shard index", where_ + ": " + what, "delete it; it is made anew at the next use", ExitCode::kBadData);
}

void ShardIndex::read_header() {
  if (bytes_.size() < sizeof(Header) || std::memcmp(bytes_.data(), kMagic, sizeof kMagic) != 0) refuse("not an index file");
  const auto header = row<Header>(bytes_, 0);
  if (header.version != kVersion) refuse("written by another version");
  if (header.header_checksum != hash64(bytes_.data(), offsetof(Header, header_checksum))) refuse("wrong checksum");
  samples_ = header.samples;
  members_ = header.members;
  media_ = header.media;
  lineages_ = header.lineages;
  labels_ = header.labels;
  extensions_ = header.extensions;
  tar_size_ = header.tar_size;
  tar_fingerprint_ = header.tar_fingerprint;
  tar_changed_ns_ = header.tar_changed_ns;
  checksum_ = header.body_checksum;
  end_mark_ = !(header.flags & kNoEndMark);
  trailing_data_ = header.flags & kTrailingData;
  has_conversations_ = header.flags & kConversations;
  has_uncounted_media_ = header.flags & kUncountedMedia;
  std::string_view rest = bytes_.substr(sizeof(Header));
  auto take = [&](uint64_t count, size_t bytes) {
    if (count > rest.size() / bytes) refuse("counts do not fit its size");
    const std::string_view table = rest.substr(0, count * bytes);
    rest.remove_prefix(table.size());
    return table;
  };
  block_table_ = take(blocks(), sizeof(SampleKindCounts));
  if (hash64(block_table_.data(), block_table_.size()) != header.blocks_checksum) refuse("wrong checksum");
  sample_table_ = take(samples_, sizeof(SampleRow));
  member_table_ = take(members_, sizeof(MemberRow));
  media_table_ = take(media_, sizeof(MediaRow));
  lineage_table_ = take(lineages_, sizeof(LineageRow));
  label_table_ = take(labels_, sizeof(TextRow));
  extension_table_ = take(extensions_, sizeof(TextRow));
  strings_ = take(header.string_bytes, 1);
  if (!rest.empty()) refuse("counts do not fit its size");
}

void ShardIndex::verify() const {
  int state = verified_.load(std::memory_order_acquire);
  if (state == 0) {  // several threads at once do the work twice, with the same result
    state = hash64(sample_table_.data(), bytes_.size() - sizeof(Header) - block_table_.size()) == checksum_ ? 1 : 2;
    verified_.store(state, std::memory_order_release);
  }
  if (state == 2) refuse("wrong checksum");
}

std::string_view ShardIndex::text(uint32_t offset, uint32_t size) const {
  if (offset > strings_.size() || size > strings_.size() - offset) refuse("name outside the file");
  if (size > kMostTextBytes) refuse("name too long");
  return strings_.substr(offset, size);
}

std::string_view ShardIndex::label(uint32_t number) const {
  if (number == 0) return {};
  if (number > labels_) refuse("label outside the file");
  const auto at = row<TextRow>(label_table_, number - 1);
  return text(at.offset, at.size);
}

SampleKindCounts ShardIndex::kind_counts(uint64_t block) const {
  if (block >= blocks()) refuse("no such block");
  return row<SampleKindCounts>(block_table_, block);
}

SampleKind ShardIndex::kind(uint64_t i) const {
  verify();
  if (i >= samples_) refuse("no such sample");
  return static_cast<uint8_t>(sample_table_[i * sizeof(SampleRow) + offsetof(SampleRow, kind)]) % kSampleKinds;
}

ShardSample ShardIndex::sample(uint64_t i) const {
  verify();
  if (i >= samples_) refuse("no such sample");
  // The checksum is no protection against malice, so every number is checked all the same.
  const auto from = row<SampleRow>(sample_table_, i);
  ShardSample sample;
  sample.key = text(from.key_offset, from.key_size);
  sample.picture_width = from.picture_width;
  sample.picture_height = from.picture_height;
  sample.text_bytes = from.text_bytes;
  sample.text_code_points = from.text_code_points;
  sample.flags = from.flags;
  sample.modalities = from.modalities;
  if (from.first_member > members_ || from.members > members_ - from.first_member) refuse("more members than there are");
  sample.members.reserve(from.members);
  for (uint32_t k = 0; k < from.members; ++k) {
    const auto member = row<MemberRow>(member_table_, uint64_t{from.first_member} + k);
    const uint64_t size = member.size_and_extension & kMostSize, extension = member.size_and_extension >> kSizeBits;
    if (extension >= extensions_) refuse("extension outside the file");
    if (member.offset > tar_size_ || size > tar_size_ - member.offset) refuse("member outside the archive");
    const auto name = row<TextRow>(extension_table_, extension);
    sample.members.push_back({text(name.offset, name.size), member.offset, size});
  }
  if (from.lineage > 0) {
    if (from.lineage > lineages_) refuse("lineage outside the file");
    const auto l = row<LineageRow>(lineage_table_, from.lineage - 1);
    sample.lineage = {label(l.category), label(l.text), label(l.image), label(l.video), label(l.audio)};
  }
  if (from.media_rows > 0) {
    if (from.first_media > media_ || from.media_rows > media_ - from.first_media) refuse("more media than there are");
    sample.media.reserve(from.media_rows);
    for (uint32_t k = 0; k < from.media_rows; ++k) {
      const auto m = row<MediaRow>(media_table_, uint64_t{from.first_media} + k);
      if (m.member >= from.members) refuse("media facts of no member");
      MediaFacts facts;
      facts.member = m.member;
      facts.kind = m.kind;
      facts.flags = m.flags;
      facts.codec = label(m.codec);
      facts.duration_us = m.duration_us;
      facts.width = m.width;
      facts.height = m.height;
      facts.rotation = m.rotation;
      facts.frames = m.frames;
      (m.kind == kHasVideo ? facts.millihertz : facts.sample_rate) = m.rate;
      facts.channels = m.channels;
      sample.media.push_back(facts);
    }
  }
  return sample;
}

IndexDraft ShardIndex::draft() const {
  IndexDraft draft{tar_size_, tar_fingerprint_, tar_changed_ns_, end_mark_, trailing_data_, {}};
  draft.samples.reserve(samples_);
  for (uint64_t i = 0; i < samples_; ++i) {
    const ShardSample from = sample(i);
    SampleDraft to;
    to.key = from.key;
    for (const ShardMember& member : from.members)
      to.members.push_back({std::string(member.extension), member.offset, member.size});
    to.picture_width = from.picture_width;
    to.picture_height = from.picture_height;
    to.text_bytes = from.text_bytes;
    to.text_code_points = from.text_code_points;
    to.flags = from.flags;
    to.modalities = from.modalities;
    const LineageView& l = from.lineage;
    to.lineage = {std::string(l.category), std::string(l.text_source), std::string(l.image_source),
                  std::string(l.video_source), std::string(l.audio_source)};
    for (const MediaFacts& m : from.media)
      to.media.push_back({m.member, m.kind, m.flags, std::string(m.codec), m.duration_us, m.width, m.height, m.rotation,
                          m.frames, m.millihertz, m.sample_rate, m.channels});
    draft.samples.push_back(std::move(to));
  }
  return draft;
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
