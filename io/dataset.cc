#include "io/dataset.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "io/dataset_manifest.h"
#include "io/index_file.h"

namespace mso {
namespace {

// Open shards, least recently used first out; a shard in use stays open through its shared_ptr.
class FileCache {
 public:
  std::shared_ptr<FileDescriptor> get(const std::filesystem::path& path, uint32_t shard) {
    {
      std::lock_guard lock(mutex_);
      auto at = open_.find(shard);
      if (at != open_.end()) {
        order_.splice(order_.begin(), order_, at->second.second);
        return at->second.first;
      }
    }
    auto fd = std::make_shared<FileDescriptor>(open_file(path, O_RDONLY));  // may block: outside the lock
    std::lock_guard lock(mutex_);
    auto at = open_.find(shard);
    if (at != open_.end()) return at->second.first;
    order_.push_front(shard);
    open_.emplace(shard, std::pair(fd, order_.begin()));
    if (open_.size() > kMost) {
      open_.erase(order_.back());
      order_.pop_back();
    }
    return fd;
  }
  void forget(uint32_t shard) {
    std::lock_guard lock(mutex_);
    auto at = open_.find(shard);
    if (at == open_.end()) return;
    order_.erase(at->second.second);
    open_.erase(at);
  }

 private:
  static constexpr size_t kMost = 256;
  std::mutex mutex_;
  std::list<uint32_t> order_;
  std::unordered_map<uint32_t, std::pair<std::shared_ptr<FileDescriptor>, std::list<uint32_t>::iterator>> open_;
};

// A shard, and what the list of its folder says of it.
struct FoundShard {
  std::filesystem::path path;
  std::shared_ptr<const std::vector<ListedShard>> listed;  // null: no list
};

std::vector<FoundShard> list_shards(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<FoundShard> shards;
  for (const std::string& text : paths) {
    std::error_code error;
    fs::path path(text);
    if (fs::is_directory(path, error)) {
      std::vector<fs::path> found;
      for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
        if (it->path().extension() == ".tar" && !it->path().filename().string().starts_with('.'))
          found.push_back(it->path());
      if (error) throw system_error("cannot list the folder", text, error.value());
      for (const fs::path& shard : found)  // a FIFO would be waited on for ever
        if (!fs::is_regular_file(shard, error))
          throw Error("a shard is no regular file", shard.string(), "remove it from the folder", ExitCode::kBadData);
      std::sort(found.begin(), found.end());
      std::shared_ptr<const std::vector<ListedShard>> listed;
      if (auto list = read_dataset_manifest(path)) {
        check_listed_shards(path, *list, found);
        listed = std::make_shared<const std::vector<ListedShard>>(std::move(*list));
      }
      for (fs::path& shard : found) shards.push_back({std::move(shard), listed});
    } else if (fs::exists(path, error)) {
      shards.push_back({path, nullptr});
    } else {
      throw Error("no such data", text, "give a folder of .tar shards, or make one with `mso data pack`",
                  ExitCode::kBadData);
    }
  }
  if (shards.empty()) {
    std::string all;
    for (const std::string& path : paths) all += (all.empty() ? "" : ", ") + path;
    throw Error("no .tar shards found", all.empty() ? "empty list of paths" : all,
                "make some with `mso data pack SRC OUT`", ExitCode::kBadData);
  }
  return shards;
}

}  // namespace

struct Dataset::Impl {
  std::vector<std::filesystem::path> paths;
  std::vector<std::shared_ptr<const ShardIndex>> indexes;
  std::vector<uint64_t> starts;  // [shards + 1] first id of each shard
  uint64_t fingerprint = 0;
  mutable FileCache files;

  void finish() {
    starts.assign(1, 0);
    Hasher hasher;
    for (size_t i = 0; i < paths.size(); ++i) {
      starts.push_back(starts.back() + indexes[i]->samples.size());
      const std::string name = paths[i].filename().string();
      const uint64_t facts[] = {name.size(), indexes[i]->tar_size, indexes[i]->tar_fingerprint,
                                indexes[i]->samples.size()};
      hasher.update(name.data(), name.size());
      hasher.update(facts, sizeof facts);
    }
    fingerprint = hasher.digest();
  }
};

Dataset::Dataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dataset::~Dataset() = default;

uint32_t Dataset::check_files(const std::vector<std::string>& paths) {
  return static_cast<uint32_t>(list_shards(paths).size());
}

void Dataset::check_split(uint32_t shards, uint32_t held_out) {
  if (held_out > 0 && held_out < shards) return;
  throw Error("cannot hold out " + std::to_string(held_out) + " shards", "data.eval_shards",
              "the data set has " + std::to_string(shards) + "; at least one must stay on each side",
              ExitCode::kBadUsage);
}

std::shared_ptr<const Dataset> Dataset::open(const std::vector<std::string>& paths) {
  auto impl = std::make_unique<Impl>();
  for (const FoundShard& shard : list_shards(paths)) {
    impl->paths.push_back(shard.path);
    impl->indexes.push_back(std::make_shared<const ShardIndex>(load_or_build_index(shard.path)));
    if (shard.listed) check_listed_samples(*shard.listed, shard.path, impl->indexes.back()->samples.size());
  }
  impl->finish();
  if (impl->starts.back() == 0)
    throw Error("the data set has no sample", impl->paths.front().parent_path().string(),
                "its shards hold no file with a name like KEY.EXTENSION", ExitCode::kBadData);
  return std::shared_ptr<const Dataset>(new Dataset(std::move(impl)));
}

std::pair<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> Dataset::split(
    const std::shared_ptr<const Dataset>& all, uint32_t shards) {
  const uint32_t count = all->shard_count();
  check_split(count, shards);
  auto part = [&](uint32_t from, uint32_t to) {
    auto impl = std::make_unique<Impl>();
    impl->paths.assign(all->impl_->paths.begin() + from, all->impl_->paths.begin() + to);
    impl->indexes.assign(all->impl_->indexes.begin() + from, all->impl_->indexes.begin() + to);
    impl->finish();
    if (impl->starts.back() == 0)
      throw Error("no sample in a part of the data set", "data.eval_shards", "its shards are empty",
                  ExitCode::kBadData);
    return std::shared_ptr<const Dataset>(new Dataset(std::move(impl)));
  };
  return {part(0, count - shards), part(count - shards, count)};
}

uint64_t Dataset::size() const { return impl_->starts.back(); }
uint32_t Dataset::shard_count() const { return static_cast<uint32_t>(impl_->paths.size()); }
const std::filesystem::path& Dataset::shard_path(uint32_t shard) const { return impl_->paths.at(shard); }
const ShardIndex& Dataset::shard_index(uint32_t shard) const { return *impl_->indexes.at(shard); }
uint64_t Dataset::fingerprint() const { return impl_->fingerprint; }

SampleRef Dataset::locate(uint64_t id) const {
  if (id >= size()) throw Error("no such sample", "id " + std::to_string(id), "the data set has " + std::to_string(size()));
  // The last shard that starts at or before id; empty shards share their start with the next.
  auto at = std::upper_bound(impl_->starts.begin(), impl_->starts.end(), id) - 1;
  return {static_cast<uint32_t>(at - impl_->starts.begin()), static_cast<uint32_t>(id - *at)};
}

const ShardSample& Dataset::sample(uint64_t id) const {
  SampleRef ref = locate(id);
  return impl_->indexes[ref.shard]->samples[ref.index];
}

std::string Dataset::describe(uint64_t id) const {
  SampleRef ref = locate(id);
  return impl_->paths[ref.shard].filename().string() + ": " + impl_->indexes[ref.shard]->samples[ref.index].key +
         " (sample " + std::to_string(id) + ")";
}

std::string Dataset::unusable_reason(uint64_t id) const {
  const uint32_t flags = sample(id).flags;
  if (flags & kSampleTruncated) return "truncated_shard";
  if (flags & kSampleDuplicateMember) return "duplicate_member";
  if (flags & kSampleBadMember) return "bad_member";
  if (flags & kSampleOddName) return "odd_name";
  return {};
}

std::vector<std::byte> Dataset::read(uint64_t id, const ShardMember& member) const {
  const SampleRef ref = locate(id);
  std::vector<std::byte> bytes(member.size);
  // A network file system may fail for a moment: three more tries, with a fresh descriptor.
  for (int attempt = 0;; ++attempt) {
    try {
      std::shared_ptr<FileDescriptor> fd = impl_->files.get(impl_->paths[ref.shard], ref.shard);
      pread_all(fd->get(), bytes.data(), bytes.size(), member.offset, impl_->paths[ref.shard]);
      return bytes;
    } catch (const Error& error) {
      impl_->files.forget(ref.shard);
      if (attempt == 3) throw Error(error.what_failed(), describe(id) + "." + member.extension + ": " + error.on(), error.hint());
      std::this_thread::sleep_for(std::chrono::milliseconds(20 << (2 * attempt)));
    }
  }
}

}  // namespace mso
