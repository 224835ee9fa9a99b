// Where bytes of shards come from: `file://` (plain reads) and `nvme://` (io_uring, O_DIRECT, registered buffers). A
// source is a folder of shards; what is done about slow, hung or failing ones is io/storage.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mso {

// Thread-safe. A read may block as long as the storage does.
class Source {
 public:
  virtual ~Source() = default;
  // As a person wrote it, for messages: "nvme://fast/shards", "/data/shards".
  virtual const std::string& name() const = 0;
  virtual const std::filesystem::path& folder() const = 0;
  // All bytes of `to` from `offset` of the file `shard` in the folder. Error naming the file where they cannot be read.
  virtual void read(const std::string& shard, uint64_t offset, std::span<std::byte> to) = 0;
  // The same if it takes no waiting (the file is open and the range in the page cache); false: use read().
  virtual bool try_read(const std::string& shard, uint64_t offset, std::span<std::byte> to) = 0;
  virtual uint64_t size(const std::string& shard) = 0;
  // The next read opens the file anew.
  virtual void forget(const std::string& shard) = 0;
};

// mdp.nvme: name → mount point or block device.
using NvmeNames = std::map<std::string, std::string>;

// The local path of a URL or bare path. nvme://name/a/b → <mount point of name>/a/b; a block device stands for the place
// where it is mounted. Error (kBadUsage) for another scheme, a name that is not configured, a device that is not mounted,
// or where it is no NVMe drive: with the reason, and file:// offered.
std::filesystem::path local_path(const std::string& url, const NvmeNames& nvme);
bool is_nvme_url(std::string_view url);

// `url` names a folder. An nvme:// one is checked as above.
std::shared_ptr<Source> open_source(const std::string& url, const NvmeNames& nvme);

// Plain reads; and io_uring, for tests that have no NVMe drive. `direct`: with O_DIRECT at this alignment in bytes, 0: not.
std::shared_ptr<Source> make_file_source(const std::string& name, const std::filesystem::path& folder);
// nullptr, with `*why` telling the reason, where this build or the kernel has no io_uring for us.
std::shared_ptr<Source> make_uring_source(const std::string& name, const std::filesystem::path& folder, unsigned direct,
                                          std::string* why);

}  // namespace mso
