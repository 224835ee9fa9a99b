// The format of a snapshot file, the same at every level: a header of 4096 bytes, then an HDF5 file (h5py
// opens the whole as it is). The header is one line of JSON that says what the file is and holds a checksum
// that covers every byte after it; its own last 16 bytes are the checksum of the rest of the header.
//
//   attributes   format, run_id, step, attempt, writer, writers, level, exact
//   /buffers/X   flat dataset of a buffer of the state, with attribute "dtype"
//   /tables/X    where tensors lie in it: name, rank, shape[8], begin, end, offset
//   /records/X   texts
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/hdf5_file.h"
#include "ckpt/snapshot.h"

namespace mso {

constexpr int kShardFormat = 1;
// Checksum: XXH3-64 over the XXH3-64 hashes of the pieces of this size from kHeaderBytes on.
constexpr uint64_t kHashChunkBytes = 1 << 20;

struct ShardHeader {
  int format = kShardFormat;
  std::string run_id;
  uint64_t step = 0;
  int64_t attempt = 0;
  int writer = 0, writers = 1;
  SnapshotLevel level = SnapshotLevel::kL0;
  bool exact = true;      // enough to resume exactly
  int delta = 0;          // L0: steps since the base it needs; 0: a full state
  double time = 0;        // Unix seconds of writing
  uint64_t size = 0;      // bytes of the whole file
  uint64_t checksum = 0;  // of everything after the header
};

std::string encode_header(const ShardHeader& header);  // kHeaderBytes long
// Error where any byte is not as encode_header() wrote it, or the format is newer than this program's.
ShardHeader decode_header(std::string_view block, const std::string& path);

// Header of an open file or of a path, and the file's size compared with it. Cheap.
ShardHeader read_header(int fd, const std::string& path);
ShardHeader read_header(const std::string& path);
// Reads and checks every byte. Error that names the file and says what is wrong.
ShardHeader verify_shard(const std::string& path);

struct BufferInfo {
  std::string name;
  DType dtype = DType::kF32;
  uint64_t count = 0;   // elements
  uint64_t offset = 0;  // bytes from the start of the file
  std::vector<TensorSlice> slices;
};
struct ShardContents {
  ShardHeader header;
  std::vector<BufferInfo> buffers;  // ascending names
  std::map<std::string, std::string> records;
};
// What is in a verified file. Error where tables and datasets do not fit together.
ShardContents read_contents(const std::string& path);

}  // namespace mso
