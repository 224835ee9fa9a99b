// A data set: the shards of a folder in order of their names, seen as one list of samples; members are read through
// io/storage.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/shard_index.h"
#include "io/storage.h"

namespace mso {

// Where sample `id` lies.
struct SampleRef {
  uint32_t shard = 0;
  uint32_t index = 0;  // inside the shard
};

// Immutable after construction; every method may be called from several threads.
class Dataset {
 public:
  // Each path is a folder (its *.tar, not recursive) or a .tar, bare, as file:// or as nvme:// (io/source.h). Shards are
  // sorted by file name within a folder, folders stay in the given order. Missing indexes are built. Error (kBadData)
  // when there is no shard or no sample in all, or when a shard that the folder's dataset.json lists is missing or
  // changed. Without `storage` the data set gets one with default options.
  static std::shared_ptr<const Dataset> open(const std::vector<std::string>& paths,
                                             std::shared_ptr<Storage> storage = nullptr);
  // What open() says of files that are missing or have another size than dataset.json says, without reading any shard.
  // Returns the number of shards.
  static uint32_t check_files(const std::vector<std::string>& paths, const NvmeNames& nvme = {});
  // Error (kBadUsage) unless `held_out` of `shards` leaves both sides one.
  static void check_split(uint32_t shards, uint32_t held_out);

  // {training part, held-out part}: the last `shards` shards are held out. Error (kBadUsage) unless both keep a shard.
  static std::pair<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> split(
      const std::shared_ptr<const Dataset>& all, uint32_t shards);

  ~Dataset();
  uint64_t size() const;  // samples; ids are 0 … size()-1, in the order of shards and of samples in them
  uint32_t shard_count() const;
  const std::filesystem::path& shard_path(uint32_t shard) const;
  const ShardIndex& shard_index(uint32_t shard) const;

  SampleRef locate(uint64_t id) const;
  // A view that lives as long as this data set. An index that turns out to be damaged is made anew in memory; Error
  // (kBadData) where that is not possible any more.
  ShardSample sample(uint64_t id) const;
  SampleKind kind(uint64_t id) const;  // of sample(id), from one byte of the index
  bool has_conversations() const;  // as the indexes say: io/conversation_sample.h
  std::string describe(uint64_t id) const;  // "shard-000003.tar: animals/cat (sample 17)" for messages

  // Why the index already rules the sample out ("duplicate_member", "truncated_shard", …); empty: usable.
  std::string unusable_reason(uint64_t id) const;

  // Bytes of a member. Error naming shard and key when no path, cache or second try gives them within the deadlines.
  std::vector<std::byte> read(uint64_t id, const ShardMember& member) const;

  // Lets the storage read ahead: `ids_of_step` gives the samples that this process reads for a step, in order; called
  // from a thread of the storage. The step that is due is told by storage().at_step().
  static void follow(const std::shared_ptr<const Dataset>& dataset,
                     std::function<std::vector<uint64_t>(uint64_t step)> ids_of_step);
  Storage& storage() const;

  // XXH3 over names, sizes and indexes of all shards: two data sets with equal fingerprints hold the same samples under
  // the same ids. Kept in the cursor so that a resume notices changed data.
  uint64_t fingerprint() const;

 private:
  struct Impl;
  explicit Dataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What Dataset::unusable_reason() means, as a sentence for people.
const char* explain_unusable(const std::string& reason);

}  // namespace mso
