#include "spank/snapshot_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "spank/log_line.h"
#include "spank/orphans.h"
#include "spank/tmpfs.h"

// Kernel headers of the build machine may be older than the kernel.
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
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
// Under the node's lock, where all that takes long should be done already; and where it could not be done before.
constexpr double kEmptyLockedS = 2, kEmptyHeldS = 0.1;

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

enum class Found { kNothing, kOurs, kOfAnother, kCovered };

// What is on the place of the snapshot directory of a job of `uid`. A user can mount over it (FUSE), and such a
// file system need never answer: none is asked.
Found look_at(const std::filesystem::path& folder, uid_t uid, dev_t& device) {
  const auto upper = upper_mount(folder);
  if (!upper) return Found::kNothing;
  if (!upper->of_plugin) return Found::kCovered;
  const auto place = place_of(folder);
  if (!place || place->device != upper->device) return Found::kCovered;  // just now
  device = place->device;
  return place->folder && place->owner == uid ? Found::kOurs : Found::kOfAnother;
}

// Detaches all that is mounted on `point`, one over the other, with whatever is mounted below. A tmpfs is
// emptied first, since open files would keep its memory; one that cannot give it back stays, and how much it
// holds is returned. `until_tmpfs`: leaves the first tmpfs attached.
uint64_t detach_mounts(const std::filesystem::path& point, double patience_s, bool until_tmpfs = false) {
  for (int stacked = 0; stacked < kMaxStacked; ++stacked) {
    const auto upper = upper_mount(point);
    if (!upper) return 0;
    if (upper->tmpfs) {
      const FileDescriptor tmpfs = hold_tmpfs(point, upper->device);
      const uint64_t held = tmpfs.valid() ? empty_tmpfs(tmpfs, patience_s) : 0;
      if (held > 0 || until_tmpfs) return held;
    }
    if (::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
    if (errno == EINVAL || errno == ENOENT) return 0;
    throw system_error("cannot unmount", point.string());
  }
  throw Error("cannot unmount", point.string(), "more mounts lie on it than one job can have");
}

// The folder's own mounts. No path that has a part of a user's in it is named: a user can mount, and rename,
// inside the snapshot directory, and what lies there goes with it. Returns the bytes that stay in use.
uint64_t detach_job_mounts(const std::filesystem::path& folder, double patience_s) {
  uint64_t held = detach_mounts(folder, patience_s);
  std::vector<std::filesystem::path> children;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) children.push_back(entry.path());
  for (const std::filesystem::path& child : children) held += detach_mounts(child, patience_s);
  return held;
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

// Makes the mount larger. Through `tree`, so that nothing a user mounts over it meanwhile is meant.
void grow(const Snapshot& snapshot, uint64_t bytes) {
  if (snapshot.tree.valid() && resize_tmpfs(snapshot.tree, bytes, inode_limit(bytes))) return;
  if (snapshot.tree.valid() ||
      ::mount(kTmpfsSource, snapshot.folder.c_str(), "tmpfs", kMountFlags | MS_REMOUNT,
              ("size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inode_limit(bytes))).c_str()) != 0)
    throw system_error("cannot grow the snapshot directory", snapshot.folder.string());
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

namespace {

// Under which name the job is kept here. On some versions of Slurm the number of restarts is the user's word, so
// it does not count while the job is at work here and has a folder: that is of this restart. Otherwise folders
// with another number are of earlier restarts, or of another job that once had the number, and are removed, and
// before a batch script, which comes first, also one with the same. What cannot be removed stays, and counts.
JobName settle_name(const RunDirectory& run, const SnapshotOrder& order) {
  const std::vector<JobName> names = run.jobs(order.job.job);
  const auto held = [&run](const JobName& name) { return run.read_state(name).value_or(JobState{}).held; };
  // The usual case, without a look at all processes.
  if (names.empty() || (names == std::vector<JobName>{order.job} && !order.first_step && !held(order.job)))
    return order.job;
  if (is_at_work(order.job.job, order.node, order.uid)) {
    for (const JobName& name : names)
      if (const auto state = run.read_state(name); state && state->ready && state->uid == order.uid) return name;
    return order.job;
  }
  JobName settled = order.job;
  for (const JobName& name : names) {
    if (name == order.job && !order.first_step && !held(name)) continue;
    try {
      remove_job_folder(run, name);
    } catch (const Error& error) {
      log_line(LogLine("undo").add("job", name.job).add("restart", name.restart).add("error", error.what()), true);
      if (name == order.job) settled.restart = names.back().restart + 1;
    }
  }
  return settled;
}

}  // namespace

Snapshot prepare_snapshot(const RunDirectory& run, const SnapshotOrder& order,
                          const PluginArguments& arguments) {
  const StateLock lock(run, arguments.lock_timeout_s, "job " + format_job_name(order.job));
  Snapshot snapshot;
  const JobName job = snapshot.job = settle_name(run, order);
  snapshot.folder = run.of(job) / "snapshot";
  const auto known = run.read_state(job);
  JobState state = known.value_or(JobState{});
  const Found found = look_at(snapshot.folder, order.uid, snapshot.device);
  if (found == Found::kCovered && state.uid == order.uid && state.ready && state.snapshot_bytes > 0)
    throw Error("something is mounted over the job's snapshot directory", snapshot.folder.string(), "unmount it",
                ExitCode::kBadUsage);
  bool present = found == Found::kOurs;
  if (present) {
    snapshot.tree = hold_tmpfs(snapshot.folder, snapshot.device);
    // A state that another version wrote: the mount says how large it is.
    if (!known && snapshot.tree.valid())
      state = {order.uid, total_bytes(snapshot.tree), true, static_cast<int64_t>(std::time(nullptr)), order.node};
    present = state.ready && state.uid == order.uid && state.snapshot_bytes > 0;
  }
  // Made by halves (its step was killed), or of another user: begin again.
  if (!present &&
      (found != Found::kNothing || state.snapshot_bytes > 0 || (state.uid != order.uid && state.ready))) {
    snapshot.tree.reset();
    remove_job_folder(run, job);
    state = JobState{};
  }

  SnapshotRoom room;
  room.asked = order.asked;
  room.present = present ? state.snapshot_bytes : 0;
  room.job_memory = order.job_memory;
  room.node_memory = node_memory_bytes();
  for (const JobName& other : run.jobs())
    if (other != job)
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
    run.write_state(job, state);
    return snapshot;
  }
  if (!present) {
    try {
      state.snapshot_bytes = bytes;
      state.ready = false;
      run.write_state(job, state);
      if (::mkdir(snapshot.folder.c_str(), 0700) != 0 && errno != EEXIST)
        throw system_error("cannot make the snapshot directory", snapshot.folder.string());
      if (::mount(kTmpfsSource, snapshot.folder.c_str(), "tmpfs", kMountFlags,
                  mount_options(order, bytes).c_str()) != 0)
        throw system_error("cannot mount the snapshot directory", snapshot.folder.string());
      state.ready = true;
      run.write_state(job, state);
      if (look_at(snapshot.folder, order.uid, snapshot.device) != Found::kOurs)
        throw Error("the snapshot directory is not what was mounted", snapshot.folder.string());
    } catch (...) {
      try {
        remove_job_folder(run, job);
      } catch (const std::exception&) {
        // The sweep finds it; what failed first is what is told.
      }
      throw;
    }
  } else if (bytes > room.present) {
    grow(snapshot, bytes);
    state.snapshot_bytes = bytes;
    run.write_state(job, state);
    snapshot.grown = true;
  }
  snapshot.bytes = bytes;
  snapshot.reused = present;
  if (!snapshot.tree.valid()) snapshot.tree = hold_tmpfs(snapshot.folder, snapshot.device);
  return snapshot;
}

void attach_snapshot(const Snapshot& snapshot) {
  if (snapshot.folder.empty()) return;
  const auto visible = [&snapshot] {
    const auto place = place_of(snapshot.folder);
    return place && place->device == snapshot.device;
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

void empty_job_folder(const RunDirectory& run, const JobName& job, double patience_s) {
  detach_mounts(run.of(job) / "snapshot", patience_s, true);
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
  JobState state = run.read_state(job).value_or(JobState{});
  if (const uint64_t held = detach_job_mounts(folder, state.held ? kEmptyHeldS : kEmptyLockedS)) {
    // The memory is still the node's to give back: it counts until it is.
    state.snapshot_bytes = held;
    state.ready = false;  // no step uses it again
    state.held = true;
    run.write_state(job, state);
    ::unlink((folder / "nvme").c_str());
    throw Error("files of the snapshot directory are still open in a process outside the job",
                folder.string() + ", " + size_text(held), "it goes when they are closed: mso-node-cleanup --sweep");
  }
  FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) throw system_error("cannot open", folder.string());
  remove_content(fd.get(), info.st_dev, 0, folder.string());
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT) throw system_error("cannot remove", folder.string());
}

}  // namespace mso
