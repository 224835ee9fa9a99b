#include "io/nvme_device.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"

namespace mso {
namespace fs = std::filesystem;
namespace {

bool is_namespace(const std::string& name) {  // "nvme0n1", not "nvme0c1n1" or "nvme0n1p2"
  if (!name.starts_with("nvme")) return false;
  size_t at = 4;
  auto digits = [&] {
    const size_t from = at;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
    return at > from;
  };
  return digits() && at < name.size() && name[at++] == 'n' && digits() && at == name.size();
}

unsigned read_unsigned(const fs::path& file, unsigned otherwise) {
  std::ifstream in(file);
  unsigned value = 0;
  return in >> value ? value : otherwise;
}

struct Walk {
  std::set<std::string> drives, others, seen;
  unsigned alignment = 0;

  void down(const fs::path& link, int depth) {
    std::error_code error;
    fs::path device = fs::canonical(link, error);
    if (error || depth > 16) {
      others.insert(link.filename().string());
      return;
    }
    if (fs::exists(device / "partition", error)) device = device.parent_path();
    if (!seen.insert(device.string()).second) return;
    const std::string name = device.filename().string();
    bool below = false;
    for (fs::directory_iterator it(device / "slaves", error), end; !error && it != end; it.increment(error)) {
      below = true;
      down(it->path(), depth + 1);
    }
    if (below) return;
    (is_namespace(name) ? drives : others).insert(name);
    alignment = std::max(alignment, read_unsigned(device / "queue/logical_block_size", 0));
  }
};

// One line of mountinfo: "36 35 259:3 / /mnt/data rw,noatime shared:1 - ext4 /dev/nvme0n1p1 rw".
struct Mount {
  unsigned major = 0, minor = 0;
  std::string root, point, type, source;
};
std::string unescaped(const std::string& text) {  // "\040" for a space
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr == text.data() + i + 4) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}
std::vector<Mount> read_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, numbers, word;
    Mount mount;
    words >> id >> parent >> numbers >> mount.root >> mount.point;
    while (words >> word && word != "-") {
    }
    words >> mount.type >> mount.source;
    const size_t colon = numbers.find(':');
    if (colon == std::string::npos) continue;
    std::from_chars(numbers.data(), numbers.data() + colon, mount.major);
    std::from_chars(numbers.data() + colon + 1, numbers.data() + numbers.size(), mount.minor);
    mount.point = unescaped(mount.point);
    mount.source = unescaped(mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace

NvmeCheck check_nvme_device(dev_t number, const fs::path& root) {
  const std::string name = std::to_string(major(number)) + ":" + std::to_string(minor(number));
  const fs::path link = root / "sys/dev/block" / name;
  NvmeCheck check;
  std::error_code error;
  if (!fs::exists(link, error)) {
    check.reason = "device " + name + " is no block device that the kernel shows in /sys/dev/block";
    return check;
  }
  Walk walk;
  walk.down(link, 0);
  if (!walk.others.empty()) {
    for (const std::string& other : walk.others) check.reason += (check.reason.empty() ? "it is on " : ", ") + other;
    check.reason += walk.others.size() == 1 ? ", which is no NVMe drive" : ", which are no NVMe drives";
    return check;
  }
  check.drives.assign(walk.drives.begin(), walk.drives.end());
  check.direct_alignment = std::max(512u, walk.alignment);
  return check;
}

NvmeCheck check_nvme_path(const fs::path& path, const fs::path& root) {
  struct stat info;
  NvmeCheck check;
  if (::stat(path.c_str(), &info) != 0) {
    check.reason = std::string("there is no ") + path.string();
    return check;
  }
  if (S_ISBLK(info.st_mode)) return check_nvme_device(info.st_rdev, root);
  std::error_code error;
  const std::string number = std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  if (fs::exists(root / "sys/dev/block" / number, error)) return check_nvme_device(info.st_dev, root);
  for (const Mount& mount : read_mounts(root)) {
    if (mount.major != major(info.st_dev) || mount.minor != minor(info.st_dev)) continue;
    struct stat device;
    if (mount.source.starts_with("/dev/") && ::stat(mount.source.c_str(), &device) == 0 && S_ISBLK(device.st_mode))
      return check_nvme_device(device.st_rdev, root);
    check.reason = "it is on a file system of type " + mount.type + " (" + mount.source + "), which has no NVMe drive of its own";
    return check;
  }
  check.reason = "the device of its file system (" + number + ") is not known";
  return check;
}

fs::path mount_point_of(dev_t number, const fs::path& root) {
  for (const Mount& mount : read_mounts(root))
    if (mount.major == major(number) && mount.minor == minor(number) && mount.root == "/") return mount.point;
  return {};
}

}  // namespace mso
