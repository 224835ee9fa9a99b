#include "io/index_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
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

// The stored index when it is there, whole as far as its header tells, and belongs to the tar as it is now. `*why` tells
// why not.
std::shared_ptr<const ShardIndex> read_fitting_index(const std::filesystem::path& tar, std::string* why) {
  const std::filesystem::path path = index_path(tar);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    *why = "there is none";
    return {};
  }
  try {
    std::shared_ptr<const ShardIndex> index = ShardIndex::open(path);
    struct stat info;
    if (::stat(tar.c_str(), &info) != 0) throw system_error("cannot stat", tar.string());
    const auto size = static_cast<uint64_t>(info.st_size);
    *why = "the shard has changed since";
    if (size != index->tar_size()) return {};
    const int64_t changed = int64_t{1'000'000'000} * info.st_mtim.tv_sec + info.st_mtim.tv_nsec;
    if (index->tar_changed_ns() != 0 && changed == index->tar_changed_ns()) return index;
    FileDescriptor fd = open_file(tar, O_RDONLY);
    return fingerprint_tar(fd.get(), size, tar) == index->tar_fingerprint() ? index : nullptr;
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
  if (!index.end_mark()) log_warn("{}: the archive is truncated; its last sample is left out", tar.string());
  if (index.trailing_data())
    log_warn("{}: something follows the end of the archive (tars joined by `cat`?); it is not read", tar.string());
}

}  // namespace

namespace {

std::shared_ptr<const ShardIndex> load_or_build(const std::filesystem::path& tar, double lock_deadline_s, bool count_all) {
  auto read_fitting = [&](std::string* why) {
    std::shared_ptr<const ShardIndex> index = read_fitting_index(tar, why);
    if (!index || !count_all || !index->has_uncounted_media()) return index;
    *why = "there is none";  // of this kind: nothing to warn of
    return std::shared_ptr<const ShardIndex>();
  };
  std::string why;
  if (std::shared_ptr<const ShardIndex> index = read_fitting(&why)) {
    log_oddities(*index, tar);
    return index;
  }
  FileDescriptor fd = open_file(tar, O_RDONLY);
  if (lock_tar(fd.get(), lock_deadline_s, tar)) {  // released with the descriptor
    std::string still;
    if (std::shared_ptr<const ShardIndex> index = read_fitting(&still)) return index;
  }
  if (why != "there is none") log_warn("index of {} is made anew: {}", tar.string(), why);
  TarIndexLimits limits;
  if (count_all) limits.media_bytes = UINT64_MAX;
  std::string bytes = build_index(tar, limits).serialize();
  std::shared_ptr<const ShardIndex> index;
  try {
    write_file_durably(index_path(tar), bytes);
    index = ShardIndex::open(index_path(tar));
    index->verify();
  } catch (const Error& error) {
    if (log_allowed("index_in_memory"))
      log_info("index of {} is kept in memory only: {}", tar.filename().string(), error.what());
    index = ShardIndex::from_bytes(std::move(bytes), index_path(tar).string());
  }
  log_oddities(*index, tar);
  return index;
}

}  // namespace

std::shared_ptr<const ShardIndex> load_or_build_index(const std::filesystem::path& tar, double lock_deadline_s) {
  return load_or_build(tar, lock_deadline_s, false);
}

std::shared_ptr<const ShardIndex> count_media_in_index(const std::filesystem::path& tar, double lock_deadline_s) {
  return load_or_build(tar, lock_deadline_s, true);
}

std::shared_ptr<const ShardIndex> rebuild_index(const std::filesystem::path& tar) {
  return ShardIndex::from_bytes(build_index(tar).serialize(), index_path(tar).string());
}

}  // namespace mso
