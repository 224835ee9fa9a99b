#include "spank/snapshot_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/units.h"

// Kernel headers of the build machine may be older than the kernel.
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif

namespace mso {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastAuto = uint64_t{16} << 20;
constexpr int kMaxStacked = 4096;  // fusermount allows a user 1000
constexpr int kMaxDepth = 6;

std::string size_text(uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// A snapshot is a few large files; a file costs kernel memory beyond the size limit.
uint64_t inode_limit(uint64_t bytes) {
  return std::clamp<uint64_t>(bytes / (64 << 10), 1024, 1 << 20);
}

std::string mount_options(const SnapshotOrder& order, uint64_t bytes) {
  return "size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inode_limit(bytes)) +
         ",mode=0700,uid=" + std::to_string(order.uid) + ",gid=" + std::to_string(order.gid);
}

constexpr unsigned long kMountFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// Is `folder` the root of a tmpfs of its own that belongs to `uid`? `device` is set to that.
bool is_snapshot_mount(const std::filesystem::path& folder, uid_t uid, dev_t& device) {
  struct stat own, above;
  struct statfs system;
  if (::lstat(folder.c_str(), &own) != 0 || !S_ISDIR(own.st_mode) || own.st_uid != uid) return false;
  if (::lstat(folder.parent_path().c_str(), &above) != 0 || own.st_dev == above.st_dev) return false;
  if (::statfs(folder.c_str(), &system) != 0 || system.f_type != TMPFS_MAGIC) return false;
  device = own.st_dev;
  return true;
}

// Detaches all that is mounted on `point`, one over the other, with whatever is mounted below.
void detach_mounts(const std::filesystem::path& point) {
  for (int stacked = 0; stacked < kMaxStacked; ++stacked) {
    if (::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
    if (errno == EINVAL || errno == ENOENT) return;
    throw system_error("cannot unmount", point.string());
  }
  throw Error("cannot unmount", point.string(), "more mounts lie on it than one job can have");
}

// The folder's own mounts. No path that has a part of a user's in it is named: a user can mount, and rename, inside the
// snapshot directory, and what lies there goes with it.
void detach_job_mounts(const std::filesystem::path& folder) {
  detach_mounts(folder);
  std::vector<std::filesystem::path> children;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) children.push_back(entry.path());
  for (const std::filesystem::path& child : children) detach_mounts(child);
}

// Removes what is in the folder `fd` stands for, never leaving the file system `device` and never following a
// link.
void remove_content(int fd, dev_t device, int depth, const std::string& path) {
  if (depth > kMaxDepth) throw Error("too deep", path);
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw system_error("cannot open", path);
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(copy), ::closedir);
  if (!folder) throw system_error("cannot list", path);
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat info;
    if (::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) continue;
    if (!S_ISDIR(info.st_mode)) {
      if (::unlinkat(fd, name.c_str(), 0) != 0 && errno != ENOENT)
        throw system_error("cannot remove", path + "/" + name);
      continue;
    }
    if (info.st_dev != device) throw Error("still mounted", path + "/" + name);
    FileDescriptor inner(::openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inner.valid()) throw system_error("cannot open", path + "/" + name);
    remove_content(inner.get(), device, depth + 1, path + "/" + name);
    if (::unlinkat(fd, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      throw system_error("cannot remove", path + "/" + name);
  }
}

FileDescriptor clone_tree(const std::filesystem::path& folder) {
  return FileDescriptor(
      static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, folder.c_str(), OPEN_TREE_CLONE | O_CLOEXEC)));
}

}  // namespace

uint64_t node_memory_bytes() {
  struct sysinfo info = {};
  ::sysinfo(&info);
  return static_cast<uint64_t>(info.totalram) * info.mem_unit;
}

SnapshotSize plan_snapshot_size(const SnapshotRoom& room, const PluginArguments& arguments) {
  SnapshotSize size;
  const uint64_t cap =
      arguments.snapshot_node_max > 0
          ? arguments.snapshot_node_max
          : room.node_memory / 100 * static_cast<uint64_t>(arguments.snapshot_node_percent) +
                room.node_memory % 100 * static_cast<uint64_t>(arguments.snapshot_node_percent) / 100;
  const uint64_t left = cap > room.others ? cap - room.others : 0;
  const auto refuse = [&size](std::string refusal, std::string hint, bool fault_of_user) {
    size.refusal = std::move(refusal);
    size.hint = std::move(hint);
    size.fault_of_user = fault_of_user;
    return size;
  };
  if (room.asked && *room.asked == 0) {
    size.bytes = room.present;
    return size;
  }
  if (!room.asked) {
    size.bytes =
        std::max(room.present, std::min({arguments.snapshot_default, arguments.snapshot_max, left,
                                         (room.job_memory > 0 ? room.job_memory : room.node_memory) / 4}));
    size.bytes -= size.bytes % kPage;
    if (size.bytes < kLeastAuto)
      return refuse(
          "no room for a snapshot directory: other jobs on this node hold " + size_text(room.others) +
              " of " + size_text(cap) +
              (room.job_memory > 0 ? ", this job has " + size_text(room.job_memory) + " of memory" : ""),
          "--mso-snapshot=off does without", left >= kLeastAuto);
    return size;
  }
  const uint64_t asked = std::max((*room.asked + kPage - 1) / kPage * kPage, room.present);
  if (asked > room.present) {
    if (room.job_memory > 0 && asked >= room.job_memory)
      return refuse("a snapshot directory of " + size_text(asked) +
                        " does not fit into the job's memory on this node, " + size_text(room.job_memory) +
                        "; its pages count against it",
                    "raise --mem or lower --mso-snapshot", true);
    if (asked > arguments.snapshot_max)
      return refuse("a snapshot directory of " + size_text(asked) +
                        " is more than the administrator allows a job, " + size_text(arguments.snapshot_max),
                    "lower --mso-snapshot", true);
    if (asked > cap)
      return refuse("a snapshot directory of " + size_text(asked) +
                        " is more than all jobs of a node may hold, " + size_text(cap),
                    "lower --mso-snapshot", true);
    if (asked > left)
      return refuse("no room for a snapshot directory of " + size_text(asked) +
                        ": other jobs on this node hold " + size_text(room.others) + " of " + size_text(cap),
                    "lower --mso-snapshot, or ask for whole nodes with --exclusive", false);
  }
  size.bytes = asked;
  return size;
}

Snapshot prepare_snapshot(const RunDirectory& run, const SnapshotOrder& order,
                          const PluginArguments& arguments) {
  const StateLock lock(run, arguments.lock_timeout_s, "job " + format_job_name(order.job));
  // A restart of the job, or another job that once had its number, is over.
  for (const JobName& other : run.jobs(order.job.job))
    if (other != order.job) remove_job_folder(run, other);

  Snapshot snapshot;
  snapshot.folder = run.of(order.job) / "snapshot";
  JobState state = run.read_state(order.job).value_or(JobState{});
  bool present = state.ready && state.uid == order.uid && state.snapshot_bytes > 0 &&
                 is_snapshot_mount(snapshot.folder, order.uid, snapshot.device);
  // Made by halves (its step was killed), or of another user: begin again.
  if (!present && (state.snapshot_bytes > 0 || (state.uid != order.uid && state.ready))) {
    remove_job_folder(run, order.job);
    state = JobState{};
  }

  SnapshotRoom room;
  room.asked = order.asked;
  room.present = present ? state.snapshot_bytes : 0;
  room.job_memory = order.job_memory;
  room.node_memory = node_memory_bytes();
  for (const JobName& other : run.jobs())
    if (other != order.job)
      if (const auto held = run.read_state(other)) room.others += held->snapshot_bytes;
  const SnapshotSize size = plan_snapshot_size(room, arguments);
  if (!size.refusal.empty()) {
    if (!order.asked)
      snapshot.note = size.refusal;
    else
      throw Error(size.refusal, "", size.hint, size.fault_of_user ? ExitCode::kBadUsage : ExitCode::kFailure);
  }

  state.uid = order.uid;
  state.node = order.node;
  if (!present) state.since = static_cast<int64_t>(std::time(nullptr));
  const uint64_t bytes = size.refusal.empty() ? size.bytes : room.present;
  if (bytes == 0) {
    // Without a directory the folder still says that the job was here: other preparations keep things in it.
    snapshot.folder.clear();
    state.snapshot_bytes = 0;
    state.ready = true;
    run.write_state(order.job, state);
    return snapshot;
  }
  if (!present) {
    try {
      state.snapshot_bytes = bytes;
      state.ready = false;
      run.write_state(order.job, state);
      if (::mkdir(snapshot.folder.c_str(), 0700) != 0 && errno != EEXIST)
        throw system_error("cannot make the snapshot directory", snapshot.folder.string());
      if (::mount("mso", snapshot.folder.c_str(), "tmpfs", kMountFlags,
                  mount_options(order, bytes).c_str()) != 0)
        throw system_error("cannot mount the snapshot directory", snapshot.folder.string());
      state.ready = true;
      run.write_state(order.job, state);
      if (!is_snapshot_mount(snapshot.folder, order.uid, snapshot.device))
        throw Error("the snapshot directory is not what was mounted", snapshot.folder.string());
    } catch (...) {
      try {
        remove_job_folder(run, order.job);
      } catch (const std::exception&) {
        // The sweep finds it; what failed first is what is told.
      }
      throw;
    }
  } else if (bytes > room.present) {
    if (::mount(
            "mso", snapshot.folder.c_str(), "tmpfs", kMountFlags | MS_REMOUNT,
            ("size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inode_limit(bytes))).c_str()) !=
        0)
      throw system_error("cannot grow the snapshot directory", snapshot.folder.string());
    state.snapshot_bytes = bytes;
    run.write_state(order.job, state);
    snapshot.grown = true;
  }
  snapshot.bytes = bytes;
  snapshot.reused = present;
  snapshot.tree = clone_tree(snapshot.folder);
  return snapshot;
}

void attach_snapshot(const Snapshot& snapshot) {
  if (snapshot.folder.empty()) return;
  const auto visible = [&snapshot] {
    struct stat info;
    return ::lstat(snapshot.folder.c_str(), &info) == 0 && info.st_dev == snapshot.device;
  };
  if (visible()) return;
  const std::string where = snapshot.folder.string() + " (the job has a mount namespace of its own)";
  if (!snapshot.tree.valid())
    throw Error("the snapshot directory cannot be shown to the task", where, "this needs Linux 5.2 or newer");
  const long result = ::syscall(SYS_move_mount, snapshot.tree.get(), "", AT_FDCWD, snapshot.folder.c_str(),
                                MOVE_MOUNT_F_EMPTY_PATH);
  const int error_number = errno;
  // Another task of the step may have been faster.
  if (result != 0 && !visible())
    throw system_error("the snapshot directory cannot be shown to the task", where, error_number);
}

void remove_job_folder(const RunDirectory& run, const JobName& job) {
  const std::filesystem::path folder = run.of(job);
  struct stat info;
  if (::lstat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    throw system_error("cannot remove", folder.string());
  }
  if (!S_ISDIR(info.st_mode)) {
    if (::unlink(folder.c_str()) != 0) throw system_error("cannot remove", folder.string());
    return;
  }
  detach_job_mounts(folder);
  FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) throw system_error("cannot open", folder.string());
  remove_content(fd.get(), info.st_dev, 0, folder.string());
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) throw system_error("cannot remove", folder.string());
}

}  // namespace mso
