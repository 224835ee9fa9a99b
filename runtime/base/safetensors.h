// Reader and writer of the safetensors format (https://huggingface.co/docs/safetensors): memory-mapped,
// validated before anything is handed out, sharded folders with `model.safetensors.index.json`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_tensor.h"

namespace mso {

// One tensor of a file: what the header says of it.
struct SafetensorsEntry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data section

  int64_t count() const {
    int64_t n = 1;
    for (int64_t dim : shape) n *= dim;
    return n;
  }
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_offset = 0;                     // of the data section in the file
};

// Parses and validates the header of a file of `file_size` bytes that starts with `start` (at least 8 bytes
// and the header, or as much of it as there is). Hostile input is refused with an Error naming `origin` and
// the tensor: header above 100 MB, not an object, duplicate keys, unknown types, negative or overflowing
// shapes, offsets that overlap, leave holes or pass the end. The data section must be covered exactly, as the
// format demands.
SafetensorsHeader parse_safetensors_header(std::string_view start, uint64_t file_size,
                                           const std::string& origin);

// One file, mapped read-only. Views stay valid as long as the object lives. A file shortened under the
// mapping would fault on access, so checkpoints are replaced by rename, never written in place.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  bool contains(const std::string& name) const { return header_.tensors.count(name) != 0; }
  const SafetensorsEntry& entry(const std::string& name) const;  // Error when there is none
  // All bytes of a tensor, row-major, in the mapping. May be unaligned: copy before use as numbers.
  std::span<const std::byte> bytes(const std::string& name) const;

 private:
  std::filesystem::path path_;
  SafetensorsHeader header_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// The tensors of a model folder, over one file (`model.safetensors`), the shards named by
// `model.safetensors.index.json`, or a single file given by its path.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder_or_file);

  std::vector<std::string> names() const;  // ascending
  bool contains(const std::string& name) const { return where_.count(name) != 0; }
  const SafetensorsEntry& entry(const std::string& name) const;
  // The file that holds a tensor, for messages.
  const std::filesystem::path& file_of(const std::string& name) const;

  HostTensor read(const std::string& name) const;
  // Rows [begin, end) of the first dimension.
  HostTensor read_rows(const std::string& name, int64_t begin, int64_t end) const;
  // Elements [begin, end) in row-major order, converted to float32 (from F16, BF16, F32, F64).
  void read_f32(const std::string& name, uint64_t begin, uint64_t end, float* out) const;

 private:
  const SafetensorsFile& file(const std::string& name) const;
  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, size_t> where_;
};

// A tensor to be written; `data` is row-major and contiguous and must outlive the call.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// Writes one file, durably (beside, synced, renamed). The same items give the same bytes: tensors in the
// order of alignment (wider types first) and name, as the Python package writes them; data starts at a
// multiple of 8.
void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// `model.safetensors`, or shards of at most `shard_bytes` (but at least one tensor each)
// `model-00001-of-0000N.safetensors` and `model.safetensors.index.json`. Items keep their order over the
// shards.
void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<SafetensorsItem>& items,
                              uint64_t shard_bytes = 5'000'000'000);

// Element-wise conversion to float32 of F16, BF16, F32 or F64; other types are an Error. `from` may be
// unaligned.
void convert_to_f32(DType dtype, const std::byte* from, float* to, size_t count);

}  // namespace mso
