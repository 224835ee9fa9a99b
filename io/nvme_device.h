// Whether a folder or block device really is on NVMe drives: what `nvme://` promises is checked, not believed.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace mso {

struct NvmeCheck {
  std::vector<std::string> drives;  // NVMe namespaces below ("nvme0n1"), by name; empty: not NVMe
  std::string reason;               // why not: "it is on sda, which is no NVMe drive"; empty: it is
  unsigned direct_alignment = 512;  // bytes: the largest logical block of the drives
};

// Follows device `number` in <root>/sys/dev/block through partitions, device mapper and md down to drives, all of which
// must be NVMe namespaces.
NvmeCheck check_nvme_device(dev_t number, const std::filesystem::path& root = "/");

// Of the file system that holds `path`, or of `path` where it is a block device. A file system without a device of its
// own (overlay, btrfs, network) is looked up in <root>/proc/self/mountinfo.
NvmeCheck check_nvme_path(const std::filesystem::path& path, const std::filesystem::path& root = "/");

// Where block device `number` is mounted: the first mount point of <root>/proc/self/mountinfo; empty: nowhere.
std::filesystem::path mount_point_of(dev_t number, const std::filesystem::path& root = "/");

}  // namespace mso
