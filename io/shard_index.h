// The index beside a shard (`shard-000000.tar` → `shard-000000.idx`): which samples the tar holds, where their members
// lie, and what planning needs to know about them without decoding. The file is mapped and shared by all processes of a
// node; samples are views into it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
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
  kSampleConversation = 1u << 7,      // no .txt, and a .json with `conversations` or `messages`: io/conversation_sample.h
};
constexpr uint32_t kSampleUnusable = kSampleDuplicateMember | kSampleTruncated | kSampleBadMember | kSampleOddName;

// What a sample holds, by the extensions of its members.
enum ModalityBit : uint8_t { kHasText = 1, kHasImage = 2, kHasVideo = 4, kHasAudio = 8 };

// What a sample can be counted as, whatever the model takes: SampleKind's bits.
enum SampleKindBit : uint8_t {
  kKindImage = 1, kKindVideo = 2, kKindAudio = 4,  // it has a file of this
  kKindJsonAlone = 8,                              // it has a .json and no .txt: a conversation, where the data has such
};
using SampleKind = uint8_t;
inline constexpr size_t kSampleKinds = 16;
using SampleKindCounts = std::array<uint16_t, kSampleKinds>;  // of the samples of a block

// Where a sample comes from, for lineage: from its .json where that says so, the category else from the folder of its
// key. Empty: not known.
template <typename Text>
struct LineageOf {
  Text category, text_source, image_source, video_source, audio_source;
  bool operator==(const LineageOf&) const = default;
  auto operator<=>(const LineageOf&) const = default;
};
using Lineage = LineageOf<std::string>;
using LineageView = LineageOf<std::string_view>;

// Flags of MediaFacts.
enum MediaFlag : uint8_t {
  kMediaUnreadable = 1,  // its header cannot be read: no other facts
  // The file is too large to be read whole while indexing and its header does not tell all: frames are 0, duration and
  // rate what the header claims (0: it does not).
  kMediaNotCounted = 2,
  kMediaWithSound = 4,  // of a video: it has a sound track
  kMediaCut = 8,        // the header lists frames behind the file's end; they are not counted
};

// What the container of a video, sound or picture member says of it (io/media_facts.h); 0 or empty: not known.
template <typename Text>
struct MediaFactsOf {
  uint16_t member = 0;  // its place in SampleOf::members
  uint8_t kind = 0;     // ModalityBit: kHasImage, kHasVideo or kHasAudio
  uint8_t flags = 0;    // MediaFlag
  Text codec;           // FFmpeg's name: "h264", "vorbis"; of a picture its format: "jpeg"
  uint64_t duration_us = 0;
  // Of video.
  uint32_t width = 0, height = 0;  // as stored; of pictures EXIF orientation applied
  uint16_t rotation = 0;           // degrees clockwise by which players turn it: 0, 90, 180, 270
  uint32_t frames = 0;             // counted, not what a header's field claims
  uint32_t millihertz = 0;         // average frames in 1000 s
  // Of sound.
  uint32_t sample_rate = 0;  // Hz
  uint16_t channels = 0;

  bool swaps_sides() const { return rotation == 90 || rotation == 270; }
  bool operator==(const MediaFactsOf&) const = default;
};

// True for the extensions that ShardSample::picture(), video() and audio() look for.
bool is_picture_extension(std::string_view extension);
bool is_video_extension(std::string_view extension);
bool is_audio_extension(std::string_view extension);
// ModalityBit of a member by its extension: text for txt and json; of a conversation's media also by the names that
// io/conversation_packer.h gives further ones ("image1.jpg", "video2"); 0 for all others.
uint8_t modality_of_extension(std::string_view extension);

// One file of a sample.
template <typename Text>
struct MemberOf {
  Text extension;       // lower case, without the dot: "jpg", "txt", "seg.png"
  uint64_t offset = 0;  // of its first byte in the tar
  uint64_t size = 0;    // bytes
};

// All members whose path shares the key: the path up to the first dot of its last component (WebDataset's rule).
template <typename Text>
struct SampleOf {
  Text key;
  std::vector<MemberOf<Text>> members;  // in the order of the tar
  uint32_t picture_width = 0, picture_height = 0;  // as stored, EXIF orientation applied; 0: no picture or unknown
  uint32_t text_bytes = 0;                         // of the .txt member, else of what a conversation's turns say
  uint32_t text_code_points = 0;
  uint32_t flags = 0;      // SampleFlag
  uint8_t modalities = 0;  // ModalityBit
  LineageOf<Text> lineage;
  // One of each video and sound, and of each picture but picture(), in the order of members.
  std::vector<MediaFactsOf<Text>> media;

  // Points into `members`; nullptr where the sample has none.
  const MemberOf<Text>* find(std::string_view extension) const;
  // The picture that is trained on: the first of jpg, jpeg, png, webp, bmp, gif, tif, tiff that exists.
  const MemberOf<Text>* picture() const;
  const MemberOf<Text>* video() const;  // the first of mp4, webm, mkv, mov, avi, m4v, mpg, mpeg, ogv, flv, ts, wmv
  // What is known of one of `members`; nullptr: nothing.
  const MediaFactsOf<Text>* facts(const MemberOf<Text>& member) const;
  const MemberOf<Text>* audio() const;  // the first of wav, flac, ogg, opus, mp3, m4a, aac, oga, aif, aiff, wma
};

// Views into an index; they live as long as it does. A pointer that find() gives lives as long as its ShardSample.
using ShardMember = MemberOf<std::string_view>;
using ShardSample = SampleOf<std::string_view>;
using MediaFacts = MediaFactsOf<std::string_view>;
// The same while an index is made.
using MemberDraft = MemberOf<std::string>;
using SampleDraft = SampleOf<std::string>;
using MediaFactsDraft = MediaFactsOf<std::string>;

// Splits a tar path by WebDataset's rule: {"dir/name", "seg.png"} for "dir/name.seg.PNG". Nothing for what is no member
// of a sample: no dot, a name that begins with a dot, and `__meta__` files. A leading "./" is dropped.
struct KeyAndExtension {
  std::string key, extension;
};
std::optional<KeyAndExtension> split_member_path(std::string_view path);

// A new index before it is written.
struct IndexDraft {
  uint64_t tar_size = 0;         // bytes of the whole archive
  uint64_t tar_fingerprint = 0;  // fingerprint_tar() of it
  int64_t tar_changed_ns = 0;    // its modification time where that can be trusted (see index_file.h), else 0
  bool end_mark = true;          // false: the archive ends without its two zero blocks (truncated)
  bool trailing_data = false;    // something stands behind the end mark; it was not read
  std::vector<SampleDraft> samples;

  // Bytes of an .idx file. Error for what the format cannot hold (names of more than 4 GiB, members of a TiB).
  std::string serialize() const;
};

// The index of a shard, over a mapped file or over bytes in memory. Opening looks at the header alone, however many
// samples there are; the rest is checked when the first sample is asked for (a checksum over the file), and every
// number is checked against the file's bounds as it is used, so that a damaged or hostile file can at most be refused.
// Thread-safe.
class ShardIndex {
 public:
  // Maps the file (reads it where mapping is not possible). Error (kBadData) naming the path where the header is not one
  // that this version wrote.
  static std::shared_ptr<const ShardIndex> open(const std::filesystem::path& path);
  static std::shared_ptr<const ShardIndex> from_bytes(std::string bytes, const std::string& where);
  ~ShardIndex();
  ShardIndex(const ShardIndex&) = delete;
  ShardIndex& operator=(const ShardIndex&) = delete;

  uint64_t size() const { return samples_; }
  uint64_t tar_size() const { return tar_size_; }
  uint64_t tar_fingerprint() const { return tar_fingerprint_; }
  int64_t tar_changed_ns() const { return tar_changed_ns_; }
  bool end_mark() const { return end_mark_; }
  bool trailing_data() const { return trailing_data_; }
  // A video or sound with kMediaNotCounted.
  bool has_uncounted_media() const { return has_uncounted_media_; }
  bool has_conversations() const { return has_conversations_; }  // a sample with kSampleConversation
  // XXH3 of all tables but the blocks' counts: what a side file (embeddings, neighbours) belongs to.
  uint64_t checksum() const { return checksum_; }
  bool mapped() const { return mapping_ != nullptr; }
  uint64_t bytes() const { return bytes_.size(); }

  // Samples in blocks of kBlock, the last one shorter, and how many of each kind a block has: counted when the index was
  // made and covered by the header's checksum, so that opening a data set walks no samples.
  static constexpr uint64_t kBlock = 4096;
  uint64_t blocks() const { return (samples_ + kBlock - 1) / kBlock; }
  SampleKindCounts kind_counts(uint64_t block) const;

  // Error (kBadData) where the content does not fit its checksum. Remembered: reading it all happens once.
  void verify() const;
  // verify()s first. Error (kBadData) for a number outside the file or the tar, and for i ≥ size().
  ShardSample sample(uint64_t i) const;
  SampleKind kind(uint64_t i) const;  // the same checks; much faster
  // Every sample again as when the index was made.
  IndexDraft draft() const;

 private:
  ShardIndex() = default;
  void read_header();
  [[noreturn]] void refuse(const char* what) const;
  std::string_view text(uint32_t offset, uint32_t size) const;
  std::string_view label(uint32_t number) const;

  std::string where_, owned_;
  void* mapping_ = nullptr;
  std::string_view bytes_;
  uint64_t samples_ = 0, members_ = 0, extensions_ = 0, labels_ = 0, lineages_ = 0, media_ = 0;
  std::string_view block_table_, sample_table_, member_table_, extension_table_, label_table_, lineage_table_, media_table_, strings_;
  uint64_t tar_size_ = 0, tar_fingerprint_ = 0, checksum_ = 0;
  int64_t tar_changed_ns_ = 0;
  bool end_mark_ = true, trailing_data_ = false, has_conversations_ = false,
       has_uncounted_media_ = false;
  mutable std::atomic<int> verified_ = 0;  // 1: good, 2: damaged
};

// XXH3 of the size and three stretches of 16 KiB of the file (start, middle, end): notices a shard that was replaced
// by another of the same size without reading all of it.
uint64_t fingerprint_tar(int fd, uint64_t size, const std::filesystem::path& path);

}  // namespace mso
