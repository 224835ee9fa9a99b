#include "io/dataset.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/dataset_manifest.h"
#include "io/index_file.h"

namespace mso {
namespace {

// A shard, and what the list of its folder says of it.
struct FoundShard {
  std::filesystem::path path;
  std::string folder_url;  // as given, "nvme://fast/shards"
  std::shared_ptr<const std::vector<ListedShard>> listed;  // null: no list
};

std::string without_last_part(const std::string& url) {
  const size_t slash = url.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : url.substr(0, slash);
}

std::vector<FoundShard> list_shards(const std::vector<std::string>& paths, const NvmeNames& nvme) {
  namespace fs = std::filesystem;
  std::vector<FoundShard> shards;
  for (const std::string& text : paths) {
    std::error_code error;
    const fs::path path = local_path(text, nvme);
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
      for (fs::path& shard : found) shards.push_back({std::move(shard), text, listed});
    } else if (fs::exists(path, error)) {
      shards.push_back({path, without_last_part(text), nullptr});
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

// The index of a shard, and the one made anew where it turned out to be damaged while in use.
class IndexSlot {
 public:
  IndexSlot(std::filesystem::path tar, std::shared_ptr<const ShardIndex> index)
      : tar_(std::move(tar)), index_(std::move(index)), in_use_(index_.get()) {}
  const ShardIndex& index() const { return *in_use_.load(std::memory_order_acquire); }
  ShardSample sample(uint64_t i) {
    return mended([i](const ShardIndex& index) { return index.sample(i); });
  }
  SampleKind kind(uint64_t i) {
    return mended([i](const ShardIndex& index) { return index.kind(i); });
  }

 private:
  template <typename Ask>
  auto mended(Ask ask) -> decltype(ask(index())) {
    const ShardIndex* used = in_use_.load(std::memory_order_acquire);
    try {
      return ask(*used);
    } catch (const Error& error) {
      std::lock_guard lock(mutex_);
      if (in_use_ == used) {
        if (healed_) throw;
        log_warn("an index is made anew in memory: {}", error.what());
        healed_ = rebuild_index(tar_);
        if (healed_->size() != used->size() || healed_->tar_fingerprint() != used->tar_fingerprint())
          throw Error("the index is damaged and the shard was changed since", tar_.string(),
                      "remove the .idx beside it and start again", ExitCode::kBadData);
        in_use_ = healed_.get();
      }
      return ask(*healed_);
    }
  }

  const std::filesystem::path tar_;
  const std::shared_ptr<const ShardIndex> index_;  // stays: views of others may point into it
  std::shared_ptr<const ShardIndex> healed_;
  std::atomic<const ShardIndex*> in_use_;
  std::mutex mutex_;
};

// All indexes, several at a time: on a network file system each costs a few round trips. The first shard's error wins.
std::vector<std::shared_ptr<IndexSlot>> open_indexes(const std::vector<FoundShard>& shards) {
  constexpr size_t kAtATime = 8;
  std::vector<std::shared_ptr<IndexSlot>> slots(shards.size());
  std::vector<std::exception_ptr> failures(shards.size());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  auto work = [&] {
    for (size_t i; !failed && (i = next++) < shards.size();) {
      try {
        auto index = load_or_build_index(shards[i].path);
        if (shards[i].listed) check_listed_samples(*shards[i].listed, shards[i].path, index->size());
        slots[i] = std::make_shared<IndexSlot>(shards[i].path, std::move(index));
      } catch (...) {
        failures[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t t = 1; t < std::min(kAtATime, (shards.size() + 15) / 16); ++t) helpers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return slots;
}

}  // namespace

struct Dataset::Impl {
  std::vector<std::filesystem::path> paths;
  std::vector<std::shared_ptr<IndexSlot>> indexes;
  std::vector<uint64_t> starts;  // [shards + 1] first id of each shard
  std::shared_ptr<Storage> storage;
  std::vector<uint32_t> storage_numbers;  // of each shard
  uint64_t fingerprint = 0;
  bool has_conversations = false;

  void finish() {
    starts.assign(1, 0);
    Hasher hasher;
    for (size_t i = 0; i < paths.size(); ++i) {
      const ShardIndex& index = indexes[i]->index();
      starts.push_back(starts.back() + index.size());
      has_conversations |= index.has_conversations();
      const std::string name = paths[i].filename().string();
      const uint64_t facts[] = {name.size(), index.tar_size(), index.tar_fingerprint(), index.size()};
      hasher.update(name.data(), name.size());
      hasher.update(facts, sizeof facts);
    }
    fingerprint = hasher.digest();
  }
};

Dataset::Dataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dataset::~Dataset() = default;

uint32_t Dataset::check_files(const std::vector<std::string>& paths, const NvmeNames& nvme) {
  return static_cast<uint32_t>(list_shards(paths, nvme).size());
}

void Dataset::check_split(uint32_t shards, uint32_t held_out) {
  if (held_out > 0 && held_out < shards) return;
  throw Error("cannot hold out " + std::to_string(held_out) + " shards", "data.eval_shards",
              "the data set has " + std::to_string(shards) + "; at least one must stay on each side",
              ExitCode::kBadUsage);
}

std::shared_ptr<const Dataset> Dataset::open(const std::vector<std::string>& paths, std::shared_ptr<Storage> storage) {
  auto impl = std::make_unique<Impl>();
  impl->storage = storage ? std::move(storage) : std::make_shared<Storage>(StorageOptions{});
  const std::vector<FoundShard> shards = list_shards(paths, impl->storage->options().nvme);
  impl->indexes = open_indexes(shards);
  for (size_t i = 0; i < shards.size(); ++i) {
    const ShardIndex& index = impl->indexes[i]->index();
    impl->paths.push_back(shards[i].path);
    impl->storage_numbers.push_back(impl->storage->add_shard({shards[i].folder_url, shards[i].path.filename().string(),
                                                              index.tar_size(), index.tar_fingerprint(), index.checksum()}));
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
    impl->storage = all->impl_->storage;
    const std::vector<uint32_t>& numbers = all->impl_->storage_numbers;
    impl->storage_numbers.assign(numbers.begin() + from, numbers.begin() + to);
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
const ShardIndex& Dataset::shard_index(uint32_t shard) const { return impl_->indexes.at(shard)->index(); }
uint64_t Dataset::fingerprint() const { return impl_->fingerprint; }
bool Dataset::has_conversations() const { return impl_->has_conversations; }

SampleRef Dataset::locate(uint64_t id) const {
  if (id >= size()) throw Error("no such sample", "id " + std::to_string(id), "the data set has " + std::to_string(size()));
  // The last shard that starts at or before id; empty shards share their start with the next.
  auto at = std::upper_bound(impl_->starts.begin(), impl_->starts.end(), id) - 1;
  return {static_cast<uint32_t>(at - impl_->starts.begin()), static_cast<uint32_t>(id - *at)};
}

ShardSample Dataset::sample(uint64_t id) const {
  SampleRef ref = locate(id);
  return impl_->indexes[ref.shard]->sample(ref.index);
}

SampleKind Dataset::kind(uint64_t id) const {
  SampleRef ref = locate(id);
  return impl_->indexes[ref.shard]->kind(ref.index);
}

std::string Dataset::describe(uint64_t id) const {
  SampleRef ref = locate(id);
  return impl_->paths[ref.shard].filename().string() + ": " +
         std::string(impl_->indexes[ref.shard]->sample(ref.index).key) + " (sample " + std::to_string(id) + ")";
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
  try {
    return impl_->storage->read(
        {impl_->storage_numbers[ref.shard], modality_of_extension(member.extension), member.offset, member.size});
  } catch (const Error& error) {
    throw Error(error.what_failed(), describe(id) + "." + std::string(member.extension) + ": " + error.on(), error.hint());
  }
}

void Dataset::follow(const std::shared_ptr<const Dataset>& dataset,
                     std::function<std::vector<uint64_t>(uint64_t step)> ids_of_step) {
  const std::weak_ptr<const Dataset> weak = dataset;
  dataset->storage().follow([weak, ids_of_step = std::move(ids_of_step)](uint64_t step) {
    std::vector<ShardRange> ranges;
    const std::shared_ptr<const Dataset> data = weak.lock();
    if (!data) return ranges;
    for (uint64_t id : ids_of_step(step)) {
      const SampleRef ref = data->locate(id);
      for (const ShardMember& member : data->sample(id).members)
        if (const uint8_t modality = modality_of_extension(member.extension))
          ranges.push_back({data->impl_->storage_numbers[ref.shard], modality, member.offset, member.size});
    }
    return ranges;
  });
}

Storage& Dataset::storage() const { return *impl_->storage; }

const char* explain_unusable(const std::string& reason) {
  if (reason == "truncated_shard") return "the shard ends in or right behind it, so parts of it may be missing";
  if (reason == "duplicate_member") return "two members have the same name, so it is unknown which is right";
  if (reason == "bad_member") return "a member is a link without target, a sparse file or cut off";
  return "its picture or caption has a second dot in its name, where WebDataset ends the key at the first";
}

}  // namespace mso
