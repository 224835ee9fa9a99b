// What is mounted where, as /proc/PID/mountinfo says. Reading it asks no file system, so it waits for none.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

struct MountEntry {
  dev_t device = 0;
  std::string point;          // path, without the file's octal escapes
  std::string type, source;   // "tmpfs"; what was named in mount(2)
  std::string super_options;  // "rw,size=1024k"
  bool operator==(const MountEntry&) const = default;
};

// Pure. Lines that are not of the form are left out. In the file's order.
std::vector<MountEntry> parse_mount_table(std::string_view text);

// Of this process; empty where it cannot be read.
std::vector<MountEntry> read_mount_table(const std::filesystem::path& root = "/");

}  // namespace mso
