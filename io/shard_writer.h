// Writes shard-000000.tar, shard-000001.tar … with an index beside each; the same samples give the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/dataset_manifest.h"

namespace mso {

struct ShardLimits {
  uint64_t bytes = uint64_t{256} << 20;  // a shard ends before the sample that would pass it
  uint64_t samples = 10000;
};

// ustar (pax headers only for names and sizes ustar cannot hold), owner 0, mode 0644, time 0.
class ShardWriter {
 public:
  // `folder` must exist.
  ShardWriter(std::filesystem::path folder, ShardLimits limits);
  ~ShardWriter();

  // Members as (extension, content), written in this order. The key must not contain a dot behind its last slash.
  void add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& members);
  // Closes, syncs and indexes the last shard. Without it what was written is incomplete.
  void finish();

  uint64_t samples() const { return samples_; }
  uint64_t shards() const { return shards_; }
  uint64_t bytes() const { return bytes_; }  // of closed shards
  const std::vector<ListedShard>& closed() const { return closed_; }

 private:
  void close_shard();
  struct Archive;
  std::filesystem::path folder_, path_;
  ShardLimits limits_;
  std::unique_ptr<Archive> archive_;
  std::vector<ListedShard> closed_;
  uint64_t samples_ = 0, shards_ = 0, bytes_ = 0, shard_samples_ = 0, shard_bytes_ = 0;
};

}  // namespace mso
