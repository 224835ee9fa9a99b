// Files: whole reads and writes with clear errors, and durable replacement (write beside, sync, rename, sync
// the directory).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

// An open file descriptor, closed when it goes out of scope.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { int fd = fd_; fd_ = -1; return fd; }
  void reset();

 private:
  int fd_ = -1;
};

// open(2) with close-on-exec and retry on EINTR; throws Error naming the path.
FileDescriptor open_file(const std::filesystem::path& path, int flags, unsigned mode = 0644);

// All bytes of a file. Error on a file larger than `limit` bytes (protects against being pointed at a device).
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 32);

// Writes all, throwing on a short write (with ENOSPC, EDQUOT… in the message).
void write_all(int fd, const void* data, size_t size, const std::filesystem::path& path);
void pwrite_all(int fd, const void* data, size_t size, uint64_t offset, const std::filesystem::path& path);
// Reads exactly `size` bytes at `offset`; a shorter file is an Error.
void pread_all(int fd, void* data, size_t size, uint64_t offset, const std::filesystem::path& path);

// Makes a folder and those above it; no error where it exists.
void make_folders(const std::filesystem::path& folder);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// Error (kBadUsage) where something stands at `path` that is not a regular file whose first 4 KiB hold `marker`: what a
// command writes must not replace a file that it did not write itself. An empty file may be replaced.
void check_may_replace(const std::filesystem::path& path, std::string_view marker, const std::string& what);

// Replaces `path` as a whole: a reader sees the old or the new content, also after power loss.
void write_file_durably(const std::filesystem::path& path, std::string_view content);
void sync_directory(const std::filesystem::path& directory);

}  // namespace mso
