#include "io/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "io/nvme_device.h"
#include "io/source_files.h"

namespace mso {

namespace fs = std::filesystem;

std::shared_ptr<FileDescriptor> SourceFiles::find(const std::string& shard) {
  std::lock_guard lock(mutex_);
  const auto at = open_.find(shard);
  if (at == open_.end()) return nullptr;
  order_.splice(order_.begin(), order_, at->second.place);
  return at->second.fd;
}

std::shared_ptr<FileDescriptor> SourceFiles::open(const std::string& shard) {
  if (auto fd = find(shard)) return fd;
  auto fd = std::make_shared<FileDescriptor>(open_file(path(shard), flags_));  // may wait: outside the lock
  std::lock_guard lock(mutex_);
  if (const auto at = open_.find(shard); at != open_.end()) return at->second.fd;
  order_.push_front(shard);
  open_.emplace(shard, Entry{fd, order_.begin()});
  if (open_.size() > kMost) {
    open_.erase(order_.back());
    order_.pop_back();
  }
  return fd;
}

void SourceFiles::forget(const std::string& shard) {
  std::lock_guard lock(mutex_);
  const auto at = open_.find(shard);
  if (at == open_.end()) return;
  order_.erase(at->second.place);
  open_.erase(at);
}

namespace {

class FileSource : public Source {
 public:
  FileSource(std::string name, fs::path folder)
      : name_(std::move(name)), folder_(std::move(folder)), files_(folder_, O_RDONLY) {}

  const std::string& name() const override { return name_; }
  const fs::path& folder() const override { return folder_; }

  void read(const std::string& shard, uint64_t offset, std::span<std::byte> to) override {
    const auto fd = files_.open(shard);
    pread_all(fd->get(), to.data(), to.size(), offset, files_.path(shard));
  }

  bool try_read(const std::string& shard, uint64_t offset, std::span<std::byte> to) override {
    const auto fd = files_.find(shard);
    if (!fd) return false;
    while (!to.empty()) {
      iovec part{to.data(), to.size()};
      const ssize_t n = ::preadv2(fd->get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
      if (n <= 0) return false;  // not in memory, not possible on this file system, or an error that read() will name
      to = to.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return true;
  }

  uint64_t size(const std::string& shard) override {
    struct stat info;
    if (::stat(files_.path(shard).c_str(), &info) != 0) throw system_error("cannot stat", files_.path(shard).string());
    return static_cast<uint64_t>(info.st_size);
  }

  void forget(const std::string& shard) override { files_.forget(shard); }

 private:
  const std::string name_;
  const fs::path folder_;
  SourceFiles files_;
};

constexpr std::string_view kFile = "file://", kNvme = "nvme://";

}  // namespace

bool is_nvme_url(std::string_view url) { return url.starts_with(kNvme); }

fs::path local_path(const std::string& url, const NvmeNames& nvme) {
  if (url.starts_with(kFile)) return url.substr(kFile.size());
  if (!is_nvme_url(url)) {
    const size_t scheme = url.find("://");
    if (scheme != std::string::npos && scheme > 0 && url.find('/') == scheme + 1)
      throw Error("unknown kind of source", url, "file://FOLDER, a bare path, or nvme://NAME/FOLDER with NAME in mdp.nvme",
                  ExitCode::kBadUsage);
    return url;
  }
  std::string_view rest = std::string_view(url).substr(kNvme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string name(rest.substr(0, slash));
  const auto at = nvme.find(name);
  if (at == nvme.end()) {
    std::string known;
    for (const auto& [other, place] : nvme) known += (known.empty() ? "" : ", ") + other;
    throw Error("an NVMe source that is not configured", url,
                "mdp.nvme maps names to mount points; " + (known.empty() ? "it is empty" : "it has " + known),
                ExitCode::kBadUsage);
  }
  fs::path place = at->second;
  auto refuse = [&](const std::string& why) {
    return Error("not an NVMe source", url + " (" + at->second + "): " + why,
                 "file://" + (place / fs::path(rest.substr(std::min(slash + 1, rest.size())))).string() +
                     " reads from there without direct reads",
                 ExitCode::kBadUsage);
  };
  const NvmeCheck check = check_nvme_path(place);
  if (!check.reason.empty()) throw refuse(check.reason);
  struct stat info;
  if (::stat(place.c_str(), &info) == 0 && S_ISBLK(info.st_mode)) {
    const fs::path mounted = mount_point_of(info.st_rdev);
    if (mounted.empty())
      throw Error("an NVMe source that is not mounted", url + " (" + at->second + ")",
                  "mount it, or give its mount point in mdp.nvme", ExitCode::kBadUsage);
    place = mounted;
  }
  rest.remove_prefix(std::min(slash + 1, rest.size()));
  return rest.empty() ? place : place / fs::path(rest);
}

std::shared_ptr<Source> make_file_source(const std::string& name, const fs::path& folder) {
  return std::make_shared<FileSource>(name, folder);
}

std::shared_ptr<Source> open_source(const std::string& url, const NvmeNames& nvme) {
  const fs::path folder = local_path(url, nvme);
  if (!is_nvme_url(url)) return make_file_source(url, folder);
  const NvmeCheck check = check_nvme_path(folder);
  std::string why;
  if (auto source = make_uring_source(url, folder, check.direct_alignment, &why)) {
    std::string drives;
    for (const std::string& drive : check.drives) drives += (drives.empty() ? "" : ", ") + drive;
    log_info("{}: direct reads by io_uring from {}", url, drives);
    return source;
  }
  log_warn("{}: plain reads instead of direct ones: {}", url, why);
  return make_file_source(url, folder);
}

}  // namespace mso
