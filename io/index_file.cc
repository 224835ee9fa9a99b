#include "io/index_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "io/tar_index.h"

namespace mso {

std::filesystem::path index_path(const std::filesystem::path& tar) {
  std::filesystem::path path = tar;
  path.replace_extension(".idx");
  return path;
}

namespace {

// The stored index when it is there, whole, and belongs to the tar as it is now. `*why` tells why not.
std::optional<ShardIndex> read_fitting_index(const std::filesystem::path& tar, int tar_fd, std::string* why) {
  const std::filesystem::path path = index_path(tar);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    *why = "there is none";
    return {};
  }
  try {
    ShardIndex index = ShardIndex::parse(read_file(path), path.string());
    struct stat info;
    if (::fstat(tar_fd, &info) != 0) throw system_error("cannot stat", tar.string());
    const uint64_t size = static_cast<uint64_t>(info.st_size);
    if (size != index.tar_size || fingerprint_tar(tar_fd, size, tar) != index.tar_fingerprint) {
      *why = "the shard has changed since";
      return {};
    }
    return index;
  } catch (const Error& error) {
    *why = error.what();
    return {};
  }
}

// An exclusive lock on the tar itself, so that no lock file is left behind. False where the file system has no locks.
bool lock_tar(int fd, double deadline_s, const std::filesystem::path& tar) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline_s);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() > until)
      throw Error("waited too long for another process that indexes the shard", tar.string(),
                  "is a process hanging? `mso data index` makes the index by hand", ExitCode::kBadData);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

void log_oddities(const ShardIndex& index, const std::filesystem::path& tar) {
  if (!index.end_mark) log_warn("{}: the archive is truncated; its last sample is left out", tar.string());
  if (index.trailing_data)
    log_warn("{}: something follows the end of the archive (tars joined by `cat`?); it is not read", tar.string());
}

}  // namespace

ShardIndex load_or_build_index(const std::filesystem::path& tar, double lock_deadline_s) {
  FileDescriptor fd = open_file(tar, O_RDONLY);
  std::string why;
  if (std::optional<ShardIndex> index = read_fitting_index(tar, fd.get(), &why)) {
    log_oddities(*index, tar);
    return std::move(*index);
  }
  if (lock_tar(fd.get(), lock_deadline_s, tar)) {  // released with the descriptor
    std::string still;
    if (std::optional<ShardIndex> index = read_fitting_index(tar, fd.get(), &still)) return std::move(*index);
  }
  if (why != "there is none") log_warn("index of {} is made anew: {}", tar.string(), why);
  ShardIndex index = build_index(tar);
  log_oddities(index, tar);
  try {
    write_file_durably(index_path(tar), index.serialize());
  } catch (const Error& error) {
    if (log_allowed("index_in_memory"))
      log_info("index of {} is kept in memory only: {}", tar.filename().string(), error.what());
  }
  return index;
}

}  // namespace mso
