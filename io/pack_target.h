// Where `mso data pack` writes: a folder of shards with its dataset.json that appears under its name when it is whole.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/partial_folder.h"
#include "io/shard_writer.h"

namespace mso {

class PackTarget {
 public:
  // Error (kBadUsage) for limits of nothing, and where something stands that an earlier `mso data pack` did not make.
  PackTarget(const std::filesystem::path& out, const ShardLimits& limits);

  ShardWriter& writer() { return *writer_; }
  // Closes the last shard, writes dataset.json (made_by, `before`, the files, `after`), and replaces the older folder.
  void publish(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after);

 private:
  std::filesystem::path out_;
  std::unique_ptr<PartialFolder> partial_;
  std::unique_ptr<ShardWriter> writer_;
};

// Threads to pack with: `wanted`, or as many as this process has cores.
size_t pack_threads(int wanted);
// Never changes: shards would come out differently.
inline constexpr uint64_t kPackShuffleKey = 0x7061636b;

}  // namespace mso
