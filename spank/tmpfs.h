// A tmpfs on a path where a user may mount things over it and inside it, and may keep its files open: taken
// hold of, resized and emptied without asking any other file system, so that none of the user's can make root
// wait.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"

namespace mso {

// What lies uppermost on `point`, as the kernel's table of mounts has it.
struct UpperMount {
  dev_t device = 0;
  bool tmpfs = false;
  bool of_plugin = false;  // a tmpfs that the plugin mounted
};
// None: nothing is mounted there.
std::optional<UpperMount> upper_mount(const std::filesystem::path& point);
// What the plugin gives mount(2) as the source.
inline constexpr const char* kTmpfsSource = "mso";

// The device of what is at `path`, a mount's root or not, the owner where a tmpfs knows it. Asks no server.
struct Place {
  dev_t device = 0;
  uid_t owner = 0;
  bool folder = false;
};
std::optional<Place> place_of(const std::filesystem::path& path);

// A copy of the mount on `point`, attached nowhere and without what is mounted inside: nobody can mount in it.
// Invalid where that is not a mount of `device`, or the kernel is older than Linux 5.2.
FileDescriptor hold_tmpfs(const std::filesystem::path& point, dev_t device);

uint64_t total_bytes(const FileDescriptor& tmpfs);
// Bytes in use, also by files that have no name any more.
uint64_t used_bytes(const FileDescriptor& tmpfs);
// False with errno where it cannot be had: less than what is in use, or an older kernel.
bool resize_tmpfs(const FileDescriptor& tmpfs, uint64_t bytes, uint64_t inodes);

// Gives the memory back: files are cut to nothing before they are removed, since a file that is open lives on.
// Then it can hold no more than a page. Returns what is in use all the same, and the size is cut to that: files
// that were removed while they were open, that are still written to, or that somebody keeps locked. Takes no
// longer than `patience_s`: a child process does it, which is left behind where a lock keeps it.
uint64_t empty_tmpfs(const FileDescriptor& tmpfs, double patience_s);

}  // namespace mso
