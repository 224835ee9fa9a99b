#include "node/ram_disk.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"

namespace mso {

std::filesystem::path level0_folder(const std::string& level0_path, const char* snapshot_dir) {
  if (!level0_path.empty() && level0_path != "auto") return level0_path;
  if (snapshot_dir && *snapshot_dir) return snapshot_dir;
  return "/dev/shm";
}

std::filesystem::path level0_folder(const std::string& level0_path) {
  return level0_folder(level0_path, std::getenv("MSO_SNAPSHOT_DIR"));
}

RamDisk inspect_ram_disk(const std::filesystem::path& folder) {
  RamDisk disk;
  disk.path = std::filesystem::absolute(folder);
  struct statfs info = {};
  while (statfs(disk.path.c_str(), &info) != 0) {
    if (errno == EINTR) continue;
    if ((errno != ENOENT && errno != ENOTDIR) || disk.path == disk.path.root_path())
      throw system_error("cannot inspect the RAM disk", disk.path.string(), errno, "set ecm.level0_path");
    disk.path = disk.path.parent_path();
  }
  disk.in_memory = info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
  disk.writable = access(disk.path.c_str(), W_OK) == 0;
  disk.total_bytes = static_cast<uint64_t>(info.f_blocks) * static_cast<uint64_t>(info.f_bsize);
  disk.free_bytes = static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
  return disk;
}

}  // namespace mso
