// The RAM disk that level 0 snapshots go to: which folder, how large, how much is free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace mso {

// The folder for ecm.level0_path: itself unless "auto" or empty; then $MSO_SNAPSHOT_DIR (set by the SPANK
// plugin for the job), else /dev/shm. `snapshot_dir` is the variable's value, null where unset.
std::filesystem::path level0_folder(const std::string& level0_path, const char* snapshot_dir);
std::filesystem::path level0_folder(const std::string& level0_path);  // asks the environment

struct RamDisk {
  std::filesystem::path path;  // the folder, or the nearest one above it that exists
  bool in_memory = false;      // tmpfs or ramfs
  bool writable = false;
  uint64_t total_bytes = 0, free_bytes = 0;  // as an unprivileged process may use them
};

// statfs(2) of the file system `folder` is, or would be, on. Error when not even / answers.
RamDisk inspect_ram_disk(const std::filesystem::path& folder);

}  // namespace mso
