#include "spank/tmpfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "node/mount_table.h"

// Kernel headers of the build machine may be older than the kernel.
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef AT_STATX_DONT_SYNC
#define AT_STATX_DONT_SYNC 0x4000
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_fsconfig
#define SYS_fsconfig 431
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_fspick
#define SYS_fspick 433
#endif

namespace mso {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPage = 4096;
constexpr unsigned kPickCloseOnExec = 1, kPickEmptyPath = 8;   // FSPICK_…
constexpr unsigned kConfigString = 1, kConfigReconfigure = 7;  // FSCONFIG_SET_STRING, FSCONFIG_CMD_RECONFIGURE
constexpr size_t kMaxNames = 1 << 20;  // as many files as a snapshot directory can have

std::optional<Place> statx_place(int folder, const char* name, int flags) {
  struct statx info = {};
  // Nothing beyond what is there anyway: of some file systems a stranger may not even know that.
  if (::statx(folder, name, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_TYPE | STATX_UID, &info) != 0 &&
      ::statx(folder, name, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &info) != 0)
    return std::nullopt;
  return Place{makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_uid, S_ISDIR(info.stx_mode)};
}

bool is_directory(int folder, const std::string& name) {
  const auto place = statx_place(folder, name.c_str(), 0);
  return place && place->folder;
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(copy), ::closedir);
  if (!list) {
    ::close(copy);
    return names;
  }
  // Bounded, for a folder that grows as fast as it is read.
  while (names.size() < kMaxNames) {
    const dirent* entry = ::readdir(list.get());
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

// Moves `fd` to 0 and closes all others: a child that hangs must not hold the node's lock or anybody's pipe.
bool keep_only(int fd) {
  if (fd != 0 && ::dup2(fd, 0) < 0) return false;
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) == 0) return true;
  const long most = ::sysconf(_SC_OPEN_MAX);  // before Linux 5.9
  for (int other = 1; other < most; ++other) ::close(other);
  return true;
}

// Removes what is no folder; a regular file's memory goes even where it is open.
void discard(int folder, const std::string& name) {
  struct stat info;
  if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) {
    // Does not wait: neither for a lease that somebody holds nor for a pipe that has taken the file's place.
    const FileDescriptor file(
        ::openat(folder, name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (file.valid() && ::ftruncate(file.get(), 0) != 0) {
      // Counted by the caller: it stays in use.
    }
  }
  ::unlinkat(folder, name.c_str(), 0);
}

// Folders are moved up into the root and emptied there, so that depth costs nothing.
void empty_folder(int root, Clock::time_point end) {
  const auto over = [end] { return Clock::now() >= end; };
  size_t number = 0;
  for (bool moved = true; moved && !over();) {
    moved = false;
    for (const std::string& name : names_in(root)) {
      if (over()) return;
      if (!is_directory(root, name)) {
        discard(root, name);
        continue;
      }
      const FileDescriptor folder(
          ::openat(root, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!folder.valid()) continue;
      for (const std::string& inner : names_in(folder.get())) {
        if (over()) return;
        if (!is_directory(folder.get(), inner)) {
          discard(folder.get(), inner);
          continue;
        }
        while (number < 2 * kMaxNames) {
          const std::string above = ".mso-" + std::to_string(number++);
          if (::renameat(folder.get(), inner.c_str(), root, above.c_str()) == 0) {
            moved = true;
            break;
          }
          if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) break;
        }
      }
      ::unlinkat(root, name.c_str(), AT_REMOVEDIR);
    }
  }
}

}  // namespace

std::optional<Place> place_of(const std::filesystem::path& path) {
  return statx_place(AT_FDCWD, path.c_str(), 0);
}

std::optional<UpperMount> upper_mount(const std::filesystem::path& point) {
  const std::vector<MountEntry> table = read_mount_table();
  const auto is_there = [&point](const MountEntry& entry) { return entry.point == point.string(); };
  if (std::none_of(table.begin(), table.end(), is_there)) return std::nullopt;
  UpperMount upper;
  const auto place = place_of(point);
  if (!place) return upper;  // it does not even tell its device: a user's
  upper.device = place->device;
  for (const MountEntry& entry : table)
    if (is_there(entry) && entry.device == place->device) {
      upper.tmpfs = entry.type == "tmpfs";
      upper.of_plugin = upper.tmpfs && entry.source == kTmpfsSource;
    }
  return upper;
}

FileDescriptor hold_tmpfs(const std::filesystem::path& point, dev_t device) {
  FileDescriptor tree(
      static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, point.c_str(), OPEN_TREE_CLONE | O_CLOEXEC)));
  if (!tree.valid()) return tree;
  // Something else may have been mounted there meanwhile.
  const auto place = statx_place(tree.get(), "", AT_EMPTY_PATH);
  if (!place || place->device != device) tree.reset();
  return tree;
}

uint64_t total_bytes(const FileDescriptor& tmpfs) {
  struct statfs info;
  return ::fstatfs(tmpfs.get(), &info) == 0 ? info.f_blocks * static_cast<uint64_t>(info.f_bsize) : 0;
}

uint64_t used_bytes(const FileDescriptor& tmpfs) {
  struct statfs info;
  if (::fstatfs(tmpfs.get(), &info) != 0 || info.f_blocks < info.f_bfree) return 0;
  return (info.f_blocks - info.f_bfree) * static_cast<uint64_t>(info.f_bsize);
}

bool resize_tmpfs(const FileDescriptor& tmpfs, uint64_t bytes, uint64_t inodes) {
  const FileDescriptor settings(
      static_cast<int>(::syscall(SYS_fspick, tmpfs.get(), "", kPickCloseOnExec | kPickEmptyPath)));
  if (!settings.valid()) return false;
  const auto set = [&settings](const char* name, uint64_t value) {
    return ::syscall(SYS_fsconfig, settings.get(), kConfigString, name, std::to_string(value).c_str(), 0) == 0;
  };
  return set("size", bytes) && (inodes == 0 || set("nr_inodes", inodes)) &&
         ::syscall(SYS_fsconfig, settings.get(), kConfigReconfigure, nullptr, nullptr, 0) == 0;
}

uint64_t empty_tmpfs(const FileDescriptor& tmpfs, double patience_s) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_s));
  // Whoever still writes gets no more than there is now.
  if (const uint64_t used = used_bytes(tmpfs)) resize_tmpfs(tmpfs, used, 0);
  // In a process of its own: whoever writes to a file, or lists a folder, from or to memory that is not there yet
  // (FUSE, userfaultfd) keeps it locked, for ever if he likes.
  const pid_t child = ::fork();
  if (child == 0) {
    if (keep_only(tmpfs.get())) {
      const FileDescriptor root(::openat(0, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (root.valid()) empty_folder(root.get(), end);
    }
    ::_exit(0);
  }
  if (child > 0) {
    for (int wait_ms = 1; ::waitpid(child, nullptr, WNOHANG) == 0; wait_ms = std::min(2 * wait_ms, 50)) {
      if (Clock::now() >= end) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, WNOHANG);
        break;
      }
      ::poll(nullptr, 0, wait_ms);
    }
  }
  uint64_t used = used_bytes(tmpfs);
  // In between a writer may have had some of it back.
  for (int i = 0; i < 3 && !resize_tmpfs(tmpfs, std::max(used, kPage), 0) && errno == EINVAL; ++i)
    used = used_bytes(tmpfs);
  return used;
}

}  // namespace mso
