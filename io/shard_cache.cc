#include "io/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "base/log.h"

namespace mso {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

// Layout of a chunk's file: the header, zeros up to kContentAt, the content.
constexpr uint64_t kBlock = 65536, kBlocks = ShardCache::kChunk / kBlock, kContentAt = 4096;
constexpr char kMagic[8] = {'M', 'S', 'O', 'C', 'H', 'N', 'K', '1'};
struct ChunkHeader {
  char magic[8];
  uint64_t shard, chunk, bytes;
  uint64_t block_checksums[kBlocks];  // XXH3 of each 64 KiB of the content
  uint64_t checksum;                  // of the fields above
};

constexpr auto kRetryAfter = std::chrono::seconds(30);
constexpr auto kTouchEvery = std::chrono::seconds(60);

bool pread_fully(int fd, void* to, size_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t n = ::pread(fd, to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to = static_cast<char*>(to) + n;
    size -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

struct Found {
  fs::path path;
  uint64_t bytes = 0;
  int64_t used_ns = 0;
};

int64_t nanoseconds(const timespec& time) { return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec; }

// Chunks below the folder; what writers left behind that died is removed.
std::vector<Found> scan(const fs::path& folder) {
  std::vector<Found> found;
  std::error_code error;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  for (fs::directory_iterator shard(folder, error), end; !error && shard != end; shard.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator it(shard->path(), inner); !inner && it != end; it.increment(inner)) {
      const std::string name = it->path().filename().string();
      struct stat info;
      if (name == "lock" || ::lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      if (name.starts_with("tmp-")) {
        if (nanoseconds(now) - nanoseconds(info.st_mtim) > int64_t{600} * 1'000'000'000) ::unlink(it->path().c_str());
        continue;
      }
      found.push_back({it->path(), static_cast<uint64_t>(info.st_size), nanoseconds(info.st_mtim)});
    }
  }
  return found;
}

// Takes a file away and returns its size; 0 where another took it. Renamed first, so that the size is that of what went,
// also where a writer replaces the file meanwhile.
uint64_t take_away(const fs::path& path, const fs::path& beside) {
  if (::rename(path.c_str(), beside.c_str()) != 0) return 0;
  struct stat info;
  const uint64_t bytes = ::lstat(beside.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  ::unlink(beside.c_str());
  return bytes;
}

FileDescriptor lock_file(const fs::path& path, int how, int milliseconds) {
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return fd;
  for (int waited = 0; ::flock(fd.get(), how | LOCK_NB) != 0; waited += 2) {
    if (waited >= milliseconds) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return fd;
}

uint64_t total(const std::vector<Found>& found) {
  uint64_t bytes = 0;
  for (const Found& file : found) bytes += file.bytes;
  return bytes;
}

}  // namespace

struct ShardCache::State {
  char magic[8];
  std::atomic<uint64_t> bytes;
};

ShardCache::ShardCache(fs::path folder, uint64_t max_bytes) : folder_(std::move(folder) / "mso-cache-1"), max_bytes_(max_bytes) {
  try {
    make_folders(folder_);
    FileDescriptor fd = open_file(folder_ / "state", O_RDWR | O_CREAT, 0600);
    // Room for it first: a write through the mapping on a full disk would end the process.
    if (const int error = ::posix_fallocate(fd.get(), 0, sizeof(State)))
      throw system_error("cannot write", (folder_ / "state").string(), error);
    const FileDescriptor nobody_writes = lock_file(folder_ / "write.lock", LOCK_EX, 5000);
    const FileDescriptor nobody_evicts = lock_file(folder_ / "evict.lock", LOCK_EX, 5000);
    if (!nobody_writes.valid() || !nobody_evicts.valid())
      throw Error("another process holds the cache for too long", folder_.string());
    void* mapping = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapping == MAP_FAILED) throw system_error("cannot map", (folder_ / "state").string());
    state_ = static_cast<State*>(mapping);
    // What is there counts, not what processes that may have died believed.
    state_->bytes = total(scan(folder_));
    std::memcpy(state_->magic, "MSOCACH1", 8);
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex_);
    note_trouble(error.what());
  }
}

ShardCache::~ShardCache() {
  if (state_) ::munmap(state_, sizeof(State));
}

fs::path ShardCache::file(uint64_t shard, uint64_t chunk) const { return folder_ / hex64(shard) / std::to_string(chunk); }

fs::path ShardCache::temporary(const fs::path& path) {
  return path.parent_path() / ("tmp-" + std::to_string(::getpid()) + "-" + std::to_string(next_temporary_.fetch_add(1)));
}

void ShardCache::note_trouble(const std::string& what) {  // with the lock held
  if (trouble_.empty()) log_warn("the cache of shards takes nothing more: {}", what);
  trouble_ = what;
  next_write_ = Clock::now() + kRetryAfter;
}

bool ShardCache::contains(uint64_t shard, uint64_t chunk) const {
  return state_ && ::access(file(shard, chunk).c_str(), R_OK) == 0;
}

bool ShardCache::read(uint64_t shard, uint64_t chunk, uint64_t offset, std::span<std::byte> to) {
  auto count = [&](uint64_t CacheCounters::* counter) {
    std::lock_guard lock(mutex_);
    ++(counters_.*counter);
    return counter == &CacheCounters::hits;
  };
  if (!state_) return false;
  const fs::path path = file(shard, chunk);
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return count(&CacheCounters::misses);
  auto damaged = [&] {
    if (log_allowed("cache_damaged")) log_warn("{} is damaged and is fetched again", path.string());
    const FileDescriptor writing = lock_file(folder_ / "write.lock", LOCK_SH, 1000);
    state_->bytes -= take_away(path, temporary(path));
    return count(&CacheCounters::damaged);
  };
  ChunkHeader header;
  if (!pread_fully(fd.get(), &header, sizeof header, 0) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      header.checksum != hash64(&header, offsetof(ChunkHeader, checksum)) || header.shard != shard ||
      header.chunk != chunk || header.bytes > kChunk)
    return damaged();
  if (offset > header.bytes || to.size() > header.bytes - offset) return damaged();
  std::vector<std::byte> block(kBlock);
  for (uint64_t at = offset / kBlock * kBlock; at < offset + to.size(); at += kBlock) {
    const uint64_t size = std::min(kBlock, header.bytes - at);
    if (!pread_fully(fd.get(), block.data(), size, kContentAt + at) ||
        hash64(block.data(), size) != header.block_checksums[at / kBlock])
      return damaged();
    const uint64_t from = std::max(at, offset), upto = std::min(at + size, offset + to.size());
    std::memcpy(to.data() + (from - offset), block.data() + (from - at), upto - from);
  }
  // Its time of last use, seen by every process that evicts.
  const uint64_t key = shard * 1000003 + chunk;
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (touched_.size() > 100000) touched_.clear();
  if (auto [at, fresh] = touched_.try_emplace(key, now); fresh || now - at->second > kTouchEvery) {
    at->second = now;
    (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  }
  ++counters_.hits;
  return true;
}

bool ShardCache::make_room(uint64_t bytes) {
  if (bytes > max_bytes_) return false;
  // One evicts; the others see what it made room for.
  const FileDescriptor evicting = lock_file(folder_ / "evict.lock", LOCK_EX, 1000);
  if (!evicting.valid()) return false;
  const uint64_t used = state_->bytes;
  if (used + bytes <= max_bytes_) return true;
  std::vector<Found> found = scan(folder_);
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.used_ns < b.used_ns; });
  // A tenth more than needed, so that not every chunk looks through the whole folder.
  const uint64_t wanted = used + bytes - max_bytes_ + max_bytes_ / 10;
  uint64_t freed = 0, evicted = 0;
  for (const Found& file : found) {
    if (freed >= wanted) break;
    const uint64_t gone = take_away(file.path, temporary(file.path));
    if (gone == 0) continue;
    state_->bytes -= gone;
    freed += gone;
    ++evicted;
  }
  // Nothing is left, yet it counts as full: what processes that died had reserved, unless somebody is writing.
  if (freed < wanted && state_->bytes + bytes > max_bytes_ && lock_file(folder_ / "write.lock", LOCK_EX, 0).valid())
    state_->bytes = total(scan(folder_));
  std::lock_guard lock(mutex_);
  counters_.evicted += evicted;
  return state_->bytes + bytes <= max_bytes_;
}

bool ShardCache::write(uint64_t shard, uint64_t chunk, std::span<const std::byte> content) {
  if (!state_ || content.empty() || content.size() > kChunk) return false;
  {
    std::lock_guard lock(mutex_);
    if (!trouble_.empty() && Clock::now() < next_write_) return false;
  }
  const uint64_t bytes = kContentAt + content.size();
  auto refused = [&] {
    std::lock_guard lock(mutex_);
    ++counters_.failed_writes;
    return false;
  };
  // From the reservation until the file is there, so that nobody counts the folder anew meanwhile.
  FileDescriptor writing = lock_file(folder_ / "write.lock", LOCK_SH, 1000);
  for (uint64_t used = state_->bytes;;) {
    if (!writing.valid()) return refused();
    if (used + bytes <= max_bytes_) {
      if (state_->bytes.compare_exchange_weak(used, used + bytes)) break;
    } else {
      writing = {};
      if (!make_room(bytes)) return refused();
      writing = lock_file(folder_ / "write.lock", LOCK_SH, 1000);
      used = state_->bytes;
    }
  }
  const fs::path path = file(shard, chunk);
  const fs::path beside = temporary(path);
  try {
    ChunkHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.shard = shard;
    header.chunk = chunk;
    header.bytes = content.size();
    for (uint64_t at = 0; at < content.size(); at += kBlock)
      header.block_checksums[at / kBlock] = hash64(content.data() + at, std::min<uint64_t>(kBlock, content.size() - at));
    header.checksum = hash64(&header, offsetof(ChunkHeader, checksum));
    make_folders(path.parent_path());
    FileDescriptor fd = open_file(beside, O_WRONLY | O_CREAT | O_EXCL, 0600);
    pwrite_all(fd.get(), &header, sizeof header, 0, beside);
    kill_point("cache_chunk_begun");
    pwrite_all(fd.get(), content.data(), content.size(), kContentAt, beside);
    // What it replaces goes first, so that its size is known however many write the chunk at once; a reader between the
    // two finds nothing and fetches. Not synced: after a power loss the checksums tell what is missing.
    while (::renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno != EEXIST && errno != EINVAL) throw system_error("cannot rename", beside.string());
      const bool unknown = errno == EINVAL;  // a file system without such renaming: exact for one writer
      state_->bytes -= take_away(path, temporary(path));
      if (!unknown) continue;
      rename_path(beside, path);
      break;
    }
  } catch (const std::exception& error) {
    ::unlink(beside.c_str());
    state_->bytes -= bytes;
    std::lock_guard lock(mutex_);
    ++counters_.failed_writes;
    note_trouble(error.what());
    return false;
  }
  std::lock_guard lock(mutex_);
  ++counters_.fills;
  if (!trouble_.empty()) log_info("the cache of shards takes chunks again");
  trouble_.clear();
  return true;
}

ShardCache::FillLock ShardCache::lock(uint64_t shard, uint64_t chunk, Clock::time_point deadline) {
  FillLock result;
  if (!state_) return result;
  std::error_code error;
  const fs::path folder = folder_ / hex64(shard);
  fs::create_directories(folder, error);
  FileDescriptor fd(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return result;
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(chunk);
  range.l_len = 1;
  while (::fcntl(fd.get(), F_OFD_SETLK, &range) != 0) {
    if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || Clock::now() >= deadline) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  result.fd_ = std::move(fd);
  return result;
}

std::string ShardCache::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

uint64_t ShardCache::bytes() const { return state_ ? state_->bytes.load() : 0; }

CacheCounters ShardCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace mso
