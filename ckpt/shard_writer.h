// Writes a rank's part of the state as a snapshot file: lays it out through HDF5 in memory (metadata only, a
// millisecond), then writes every byte once, in file order, hashing each piece while it is in the cache.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "ckpt/shard_file.h"
#include "ckpt/snapshot.h"

namespace mso {

// The part of `view` that a full state of `level` stores: never gradients and what goes with them (deltas hold
// those, ckpt/delta.h). L0: no tokenizer, no full ledger. L1: no full ledger, and only "master" where `optimizer`
// is false.
StateView view_for_level(const StateView& view, SnapshotLevel level, bool optimizer);

struct WriteOptions {
  // Called after each piece of at most 1 MiB with the bytes written since the last call: throttle, or throw
  // to give up.
  std::function<void(uint64_t)> after_piece;
  std::string_view kill_prefix;  // "l0": points "l0_after_half_written"… are passed
};

// Metadata of one snapshot file in memory, and which bytes come from the state.
class ShardImage {
 public:
  // `header`: all but size and checksum. Reads records and tables of `view` now, its buffers in write().
  ShardImage(const StateView& view, ShardHeader header);
  ~ShardImage();
  ShardImage(const ShardImage&) = delete;

  uint64_t size() const { return header_.size; }
  // Fills the open file, whatever was in it, from the start to size() and cuts it there; the header comes
  // last, so a file that is not finished has none. Returns the finished header. Does not sync.
  ShardHeader write(int fd, const std::string& path, const WriteOptions& options = {});

 private:
  struct Extent {
    uint64_t offset, size;
    const char* data;
  };
  ShardHeader header_;
  FileDescriptor memory_;  // sparse: only the metadata is there
  const char* mapped_ = nullptr;
  std::vector<Extent> extents_;  // the whole file after the header, ascending, without gaps
};

}  // namespace mso
