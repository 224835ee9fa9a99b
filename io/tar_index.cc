#include "io/tar_index.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/conversation_sample.h"
#include "io/image.h"
#include "io/media_facts.h"
#include "io/utf8.h"

namespace mso {
namespace {

constexpr uint64_t kBlock = 512;
uint64_t round_up(uint64_t value) { return (value + kBlock - 1) / kBlock * kBlock; }

struct ArchiveCloser {
  void operator()(archive* a) const { archive_read_free(a); }
};

// libarchive's source over pread: `skip` and `seek` move the position, so that members are not read while indexing.
struct TarSource {
  int fd;
  uint64_t position = 0, size = 0;
  std::vector<char> buffer = std::vector<char>(1 << 16);
  int error = 0;
};

la_ssize_t source_read(archive*, void* client, const void** buffer) {
  TarSource& source = *static_cast<TarSource*>(client);
  *buffer = source.buffer.data();
  for (;;) {
    ssize_t n = ::pread(source.fd, source.buffer.data(), source.buffer.size(), static_cast<off_t>(source.position));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      source.error = errno;
      return ARCHIVE_FATAL;
    }
    source.position += static_cast<uint64_t>(n);
    return n;
  }
}

la_int64_t source_skip(archive*, void* client, la_int64_t request) {
  TarSource& source = *static_cast<TarSource*>(client);
  // Only forward and never past the end, so that a cut archive is noticed.
  uint64_t left = source.size > source.position ? source.size - source.position : 0;
  uint64_t step = request <= 0 ? 0 : std::min<uint64_t>(static_cast<uint64_t>(request), left);
  source.position += step;
  return static_cast<la_int64_t>(step);
}

bool all_zero(const char* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](char c) { return c == 0; });
}

// Reads up to `size` bytes inside the file; shorter at its end or on an error.
size_t read_some(int fd, void* to, size_t size, uint64_t offset) {
  size_t got = 0;
  while (got < size) {
    ssize_t n = ::pread(fd, static_cast<char*>(to) + got, size - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

// Collects members into samples in the order in which keys first appear.
class Builder {
 public:
  Builder(const std::filesystem::path& tar, int fd, const TarIndexLimits& limits)
      : tar_(tar), fd_(fd), limits_(limits) {}

  Error refuse(const std::string& what, const std::string& hint) const {
    return Error(what, tar_.string(), hint, ExitCode::kBadData);
  }

  // `usable`: plain data at [offset, offset + size).
  void add(std::string_view path, uint64_t offset, uint64_t size, bool usable) {
    if (++members_ > limits_.members) throw refuse("too many members in the archive", "make smaller shards");
    if (path.size() > limits_.path_bytes) throw refuse("a member's name is too long", "rename it");
    std::optional<KeyAndExtension> split = split_member_path(path);
    if (!split) return;
    auto [at, fresh] = by_key_.try_emplace(split->key, samples_.size());
    if (fresh) {
      samples_.emplace_back();
      samples_.back().key = split->key;
    }
    SampleDraft& sample = samples_[at->second];
    if (!fresh && at->second != last_) sample.flags |= kSampleMerged;
    last_ = at->second;
    if (!usable) sample.flags |= kSampleBadMember;
    if (sample.find(split->extension)) {
      sample.flags |= kSampleDuplicateMember;
      return;
    }
    if (sample.members.size() >= limits_.members_of_sample)
      throw refuse("too many members with the key '" + split->key + "'", "the key ends at the first dot of a name");
    if (!usable) offset = size = 0;
    sample.modalities |= modality_of_extension(split->extension);
    sample.members.push_back({std::move(split->extension), offset, size});
  }

  // The member a hard link points at, if it came before.
  const MemberDraft* find(std::string_view path) const {
    std::optional<KeyAndExtension> split = split_member_path(path);
    if (!split) return nullptr;
    auto at = by_key_.find(split->key);
    return at == by_key_.end() ? nullptr : samples_[at->second].find(split->extension);
  }

  void mark_truncated() {
    if (!samples_.empty()) samples_[last_].flags |= kSampleTruncated;
  }

  std::vector<SampleDraft> finish() {
    for (SampleDraft& sample : samples_) describe(sample);
    return std::move(samples_);
  }

 private:
  // Picture size, caption length, and names that would make half a sample.
  void describe(SampleDraft& sample) const {
    const MemberDraft* picture = sample.picture();
    const MemberDraft* text = sample.find("txt");
    for (const MemberDraft& member : sample.members) {
      size_t dot = member.extension.rfind('.');
      if (dot == std::string::npos) continue;
      if (modality_of_extension(member.extension) != 0) continue;  // further media of a conversation
      std::string_view last = std::string_view(member.extension).substr(dot + 1);
      if ((!picture && is_picture_extension(last)) || (!text && last == "txt")) sample.flags |= kSampleOddName;
    }
    describe_origin(sample);
    if (sample.flags & kSampleUnusable) return;
    if (picture) {
      std::optional<ImageInfo> found = probe(*picture);
      if (!found) {
        sample.flags |= kSampleSizeUnknown;
      } else if (found->width <= 0 || found->height <= 0 || found->width > limits_.picture_side ||
                 found->height > limits_.picture_side) {
        sample.flags |= kSampleBadPictureSize;
      } else {
        sample.picture_width = static_cast<uint32_t>(found->width);
        sample.picture_height = static_cast<uint32_t>(found->height);
      }
    }
    if (text) {
      sample.text_bytes = static_cast<uint32_t>(std::min<uint64_t>(text->size, UINT32_MAX));
      sample.text_code_points = sample.text_bytes;
      if (text->size <= limits_.text_bytes) {
        std::string content(text->size, '\0');
        content.resize(read_some(fd_, content.data(), content.size(), text->offset));
        sample.text_code_points = static_cast<uint32_t>(count_code_points(content));
      }
    }
    describe_media(sample, picture);
  }

  // Whatever a file's header is, indexing goes on.
  void describe_media(SampleDraft& sample, const MemberDraft* picture) const {
    for (size_t i = 0; i < sample.members.size(); ++i) {
      const MemberDraft& member = sample.members[i];
      const uint8_t kind = modality_of_extension(member.extension);
      MediaFactsDraft facts;
      if (kind == kHasVideo || kind == kHasAudio) {
        const MediaBytes bytes{member.size, [&](uint64_t offset, void* to, size_t size) {
                                 if (offset >= member.size) return size_t{0};
                                 return read_some(fd_, to, std::min<uint64_t>(size, member.size - offset), member.offset + offset);
                               }};
        facts = read_media_facts(bytes, kind, limits_.media_bytes);
      } else if (kind == kHasImage && &member != picture) {
        facts.kind = kHasImage;
        if (const std::optional<ImageInfo> found = probe(member); found && found->width > 0 && found->height > 0) {
          facts.codec = found->format;
          facts.width = static_cast<uint32_t>(found->width);
          facts.height = static_cast<uint32_t>(found->height);
        } else {
          facts.flags = kMediaUnreadable;
        }
      } else {
        continue;
      }
      facts.member = static_cast<uint16_t>(i);
      sample.media.push_back(std::move(facts));
    }
  }

  // Category and sources: what the .json says, for the category else the folder of the key.
  void describe_origin(SampleDraft& sample) const {
    if (const MemberDraft* json = sample.find("json"); json && json->size <= limits_.json_bytes) {
      std::string content(json->size, '\0');
      content.resize(read_some(fd_, content.data(), content.size(), json->offset));
      try {
        const auto document = parse_shallow_json(content);
        auto take = [&](const char* key, std::string& into) {
          if (const auto at = document.find(key); at != document.end() && at->is_string()) into = at->get<std::string>();
          if (into.size() > limits_.path_bytes) into.clear();
        };
        if (document.is_object()) {
          take("category", sample.lineage.category);
          take("text_source", sample.lineage.text_source);
          take("image_source", sample.lineage.image_source);
          take("video_source", sample.lineage.video_source);
          take("audio_source", sample.lineage.audio_source);
          if (!sample.find("txt") && (document.contains("conversations") || document.contains("messages"))) {
            sample.flags |= kSampleConversation;
            const auto [bytes, code_points] = size_of_conversation(document);
            sample.text_bytes = bytes;
            sample.text_code_points = code_points;
          }
        }
      } catch (const std::exception&) {  // `mso data verify` names it where it matters
      }
    }
    if (sample.lineage.category.empty())
      if (const size_t slash = sample.key.rfind('/'); slash != std::string::npos)
        sample.lineage.category = sample.key.substr(0, slash);
  }

  // From the start of the file, for a header needs no more; from all of it where an odd one does.
  std::optional<ImageInfo> probe(const MemberDraft& picture) const {
    for (uint64_t most : {uint64_t{1} << 16, uint64_t{1} << 26}) {
      std::vector<std::byte> bytes(std::min(picture.size, most));
      bytes.resize(read_some(fd_, bytes.data(), bytes.size(), picture.offset));
      try {
        return probe_image(bytes, tar_.string());
      } catch (const Error&) {
        if (picture.size <= most) break;
      }
    }
    return {};
  }

  const std::filesystem::path& tar_;
  int fd_;
  const TarIndexLimits& limits_;
  std::vector<SampleDraft> samples_;
  std::unordered_map<std::string, size_t> by_key_;
  size_t last_ = 0;
  uint64_t members_ = 0;
};

// A file changed again within one tick of the clock keeps its time, so only one that is at rest can be told by it.
int64_t trusted_change_time(const timespec& changed) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t then = int64_t{1'000'000'000} * changed.tv_sec + changed.tv_nsec;
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec - then > 2'000'000'000 ? then : 0;
}

}  // namespace

IndexDraft build_index(const std::filesystem::path& tar, const TarIndexLimits& limits) {
  FileDescriptor fd = open_file(tar, O_RDONLY);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot stat", tar.string());
  if (!S_ISREG(info.st_mode))
    throw Error("not a shard", tar.string() + " is no regular file", "give a .tar file", ExitCode::kBadData);

  IndexDraft index;
  index.tar_size = static_cast<uint64_t>(info.st_size);
  index.tar_changed_ns = trusted_change_time(info.st_mtim);
  index.tar_fingerprint = fingerprint_tar(fd.get(), index.tar_size, tar);
  Builder builder(tar, fd.get(), limits);
  if (index.tar_size == 0) throw builder.refuse("not a tar archive: the file is empty", "pack the shard again");

  TarSource source{fd.get(), 0, index.tar_size};
  std::unique_ptr<archive, ArchiveCloser> reader(archive_read_new());
  if (!reader) throw std::bad_alloc();
  archive_read_support_format_tar(reader.get());
  archive_read_set_read_callback(reader.get(), source_read);
  archive_read_set_skip_callback(reader.get(), source_skip);
  archive_read_set_callback_data(reader.get(), &source);
  int opened = archive_read_open1(reader.get());
  uint64_t end = 0;  // where the next header should be
  bool first = true;
  if (opened != ARCHIVE_OK) throw builder.refuse("not a tar archive", "shards are plain, uncompressed .tar files");
  for (;;) {
    archive_entry* entry = nullptr;
    int result = archive_read_next_header(reader.get(), &entry);
    if (source.error) throw system_error("cannot read", tar.string(), source.error);
    if (result == ARCHIVE_EOF) break;
    // ARCHIVE_RETRY would search for the next good header; but then a sample could lose a member unnoticed.
    if (result < ARCHIVE_WARN) {
      if (first) {
        const char* text = archive_error_string(reader.get());
        throw builder.refuse("not a tar archive", text ? std::string("libarchive says: ") + text : "pack it again");
      }
      index.end_mark = false;  // damaged or cut; what came before is whole
      break;
    }
    first = false;
    const uint64_t offset = static_cast<uint64_t>(archive_filter_bytes(reader.get(), 0));
    const int64_t declared = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;
    const uint64_t size = declared > 0 ? static_cast<uint64_t>(declared) : 0;
    const char* path = archive_entry_pathname(entry);  // raw bytes; null for a pax name outside the locale
    if (!path) path = archive_entry_pathname_utf8(entry);
    if (!path) {
      index.end_mark = false;
      break;
    }
    const char* link = archive_entry_hardlink(entry);
    const auto type = archive_entry_filetype(entry);
    const bool sparse = archive_entry_sparse_count(entry) > 0;
    if (link) {
      const MemberDraft* target = builder.find(link);
      const MemberDraft copy = target ? *target : MemberDraft{};
      builder.add(path, copy.offset, copy.size, target != nullptr);
    } else if (type == AE_IFREG) {
      if (declared < 0 || offset > index.tar_size || size > index.tar_size - offset) {
        builder.add(path, 0, 0, false);
        index.end_mark = false;
        break;
      }
      builder.add(path, offset, size, !sparse);
      end = offset + round_up(size);
    } else if (type != AE_IFDIR) {
      builder.add(path, 0, 0, false);
    }
    if (type != AE_IFREG || link) end = offset;
    int skipped = archive_read_data_skip(reader.get());
    if (source.error) throw system_error("cannot read", tar.string(), source.error);
    if (skipped < ARCHIVE_WARN) {
      index.end_mark = false;
      break;
    }
  }
  // The end mark is two blocks of zeros; GNU tar and Python accept one, so one is enough here.
  if (index.end_mark) {
    char block[kBlock];
    index.end_mark = read_some(fd.get(), block, kBlock, end) == kBlock && all_zero(block, kBlock);
  }
  if (index.end_mark) {
    std::vector<char> buffer(1 << 16);
    for (uint64_t at = end + kBlock; at < index.tar_size && !index.trailing_data;) {
      size_t got = read_some(fd.get(), buffer.data(), buffer.size(), at);
      if (got == 0) break;
      index.trailing_data = !all_zero(buffer.data(), got);
      at += got;
    }
  } else {
    builder.mark_truncated();
  }
  index.samples = builder.finish();
  return index;
}

}  // namespace mso
