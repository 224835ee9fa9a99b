#include "io/shard_writer.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "io/index_file.h"
#include "io/tar_index.h"

namespace mso {

struct ShardWriter::Archive {
  FileDescriptor fd;
  archive* writer = nullptr;
  ~Archive() {
    if (writer) archive_write_free(writer);
  }
};

namespace {

[[noreturn]] void fail(archive* writer, const std::filesystem::path& path) {
  // libarchive says "Write error" alone where the system would not write.
  const char* text = archive_error_string(writer);
  const int number = archive_errno(writer);
  throw Error("cannot write the shard",
              path.string() + ": " + (text ? text : "unknown error") + (number > 0 ? std::string(": ") + std::strerror(number) : ""),
              "is the storage full?");
}

}  // namespace

ShardWriter::ShardWriter(std::filesystem::path folder, ShardLimits limits)
    : folder_(std::move(folder)), limits_(limits) {}
ShardWriter::~ShardWriter() = default;

void ShardWriter::add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& members) {
  uint64_t bytes = 0;
  for (const auto& [extension, content] : members) bytes += 512 + (content.size() + 511) / 512 * 512;
  if (archive_ && (shard_samples_ >= limits_.samples || shard_bytes_ + bytes > limits_.bytes)) close_shard();
  if (!archive_) {
    char name[32];
    std::snprintf(name, sizeof name, "shard-%06llu.tar", static_cast<unsigned long long>(shards_));
    path_ = folder_ / name;
    archive_ = std::make_unique<Archive>();
    archive_->fd = open_file(path_, O_WRONLY | O_CREAT | O_TRUNC);
    archive_->writer = archive_write_new();
    if (!archive_->writer) throw std::bad_alloc();
    archive_write_set_format_pax_restricted(archive_->writer);
    archive_write_set_bytes_in_last_block(archive_->writer, 512);
    if (archive_write_open_fd(archive_->writer, archive_->fd.get()) != ARCHIVE_OK) fail(archive_->writer, path_);
  }
  for (const auto& [extension, content] : members) {
    std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(), archive_entry_free);
    if (!entry) throw std::bad_alloc();
    archive_entry_set_pathname(entry.get(), (key + "." + extension).c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_mtime(entry.get(), 0, 0);
    archive_entry_set_uid(entry.get(), 0);
    archive_entry_set_gid(entry.get(), 0);
    if (archive_write_header(archive_->writer, entry.get()) != ARCHIVE_OK) fail(archive_->writer, path_);
    if (archive_write_data(archive_->writer, content.data(), content.size()) !=
        static_cast<la_ssize_t>(content.size()))
      fail(archive_->writer, path_);
  }
  ++samples_;
  ++shard_samples_;
  shard_bytes_ += bytes;
}

void ShardWriter::close_shard() {
  if (archive_write_close(archive_->writer) != ARCHIVE_OK) fail(archive_->writer, path_);
  if (::fsync(archive_->fd.get()) != 0) throw system_error("cannot sync", path_.string());
  archive_.reset();
  const uint64_t size = std::filesystem::file_size(path_);
  bytes_ += size;
  closed_.push_back({path_.filename().string(), size, shard_samples_});
  IndexDraft index = build_index(path_);
  // Written by this process alone and not touched again: its time is right though it is young.
  struct stat info;
  if (::stat(path_.c_str(), &info) != 0) throw system_error("cannot stat", path_.string());
  index.tar_changed_ns = int64_t{1'000'000'000} * info.st_mtim.tv_sec + info.st_mtim.tv_nsec;
  write_file_durably(index_path(path_), index.serialize());
  ++shards_;
  shard_samples_ = shard_bytes_ = 0;
}

void ShardWriter::finish() {
  if (archive_) close_shard();
}

}  // namespace mso
