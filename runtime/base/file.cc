#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace mso {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

FileDescriptor open_file(const std::filesystem::path& path, int flags, unsigned mode) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw system_error((flags & O_ACCMODE) == O_RDONLY ? "cannot read" : "cannot write", path.string());
  return FileDescriptor(fd);
}

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  FileDescriptor fd = open_file(path, O_RDONLY);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot stat", path.string());
  if (S_ISDIR(info.st_mode)) throw Error("cannot read", path.string() + " is a directory", "give a file");
  std::string content;
  if (info.st_size > 0 && static_cast<uint64_t>(info.st_size) <= limit) content.reserve(info.st_size);
  char buffer[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot read", path.string());
    if (n == 0) return content;
    content.append(buffer, n);
    if (content.size() > limit)
      throw Error("file too large", path.string(), "at most " + std::to_string(limit) + " bytes are read here");
  }
}

void write_all(int fd, const void* data, size_t size, const std::filesystem::path& path) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot write", path.string());
    at += n;
    size -= n;
  }
}

void pwrite_all(int fd, const void* data, size_t size, uint64_t offset, const std::filesystem::path& path) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = ::pwrite(fd, at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot write", path.string());
    at += n;
    size -= n;
    offset += n;
  }
}

void pread_all(int fd, void* data, size_t size, uint64_t offset, const std::filesystem::path& path) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    ssize_t n = ::pread(fd, at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot read", path.string());
    if (n == 0)
      throw Error("file ends too early", path.string() + " at byte " + std::to_string(offset),
                  "the file is truncated");
    at += n;
    size -= n;
    offset += n;
  }
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_error("cannot create the folder", folder.string(), error.value());
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("cannot rename", from.string() + " to " + to.string());
}

void check_may_replace(const std::filesystem::path& path, std::string_view marker, const std::string& what) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return;  // nothing there; writing tells what else is wrong
  auto refuse = [&](const std::string& why) {
    return Error("would overwrite", path.string() + " " + why, "give another name, or remove it first", ExitCode::kBadUsage);
  };
  if (S_ISDIR(info.st_mode)) throw refuse("is a folder");
  if (!S_ISREG(info.st_mode)) throw refuse("is no regular file");
  if (info.st_size == 0) return;
  char head[4096];
  FileDescriptor fd = open_file(path, O_RDONLY);
  const ssize_t n = ::pread(fd.get(), head, sizeof head, 0);
  if (n < 0) throw system_error("cannot read", path.string());
  if (std::string_view(head, static_cast<size_t>(n)).find(marker) == std::string_view::npos)
    throw refuse("is not " + what);
}

void sync_directory(const std::filesystem::path& directory) {
  FileDescriptor fd = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd.get()) != 0) throw system_error("cannot sync", directory.string());
}

void write_file_durably(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path beside = path;
  beside += ".tmp" + std::to_string(::getpid());
  try {
    FileDescriptor fd = open_file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(fd.get(), content.data(), content.size(), beside);
    if (::fsync(fd.get()) != 0) throw system_error("cannot sync", beside.string());
    fd.reset();
    if (::rename(beside.c_str(), path.c_str()) != 0) throw system_error("cannot rename", beside.string());
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

}  // namespace mso
