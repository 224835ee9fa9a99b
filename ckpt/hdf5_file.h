// The one small RAII wrapper over HDF5's serial C API: just what snapshot files need. HDF5 holds a global
// lock while it works, so bulk data never passes through it: datasets are laid out here and their bytes
// written and read at their offset in the file by other means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "comm/flat_layout.h"

namespace mso {

// Bytes before the HDF5 part of a snapshot file (HDF5's "user block"): the header of ckpt/shard_file.h.
constexpr uint64_t kHeaderBytes = 4096;

class Hdf5File {
 public:
  // A new file in the empty open descriptor `fd` (stays the caller's; holes where nothing is written); `name`
  // is for messages. Error with HDF5's own message, here and in all methods.
  static Hdf5File create(int fd, const std::string& name);
  // Read only. The file must have been verified: HDF5 1.10 may crash on damaged metadata.
  static Hdf5File open(const std::string& path);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&&) = delete;
  ~Hdf5File();

  // Writes out the metadata; the file is complete but for the bulk. Error on failure (the destructor is
  // silent).
  void close();

  void create_group(const std::string& name);
  // Numbers and texts on the root group.
  void set_attribute(const std::string& name, int64_t value);
  void set_attribute(const std::string& name, const std::string& value);

  // A flat dataset of `count` elements, contiguous and allocated at once but not written. Returns its offset
  // in the file in bytes (a multiple of 4096; 0 where count is 0).
  uint64_t create_flat(const std::string& name, DType dtype, uint64_t count);
  // A compound dataset of one row per slice: name, rank, shape[8], begin, end, offset.
  void write_table(const std::string& name, const std::vector<TensorSlice>& slices);
  void write_text(const std::string& name, const std::string& text);

  std::vector<std::string> names_in(const std::string& group) const;  // ascending
  struct Flat {
    DType dtype;
    uint64_t count, offset;  // elements; bytes in the file
  };
  Flat flat(const std::string& name) const;
  std::vector<TensorSlice> read_table(const std::string& name) const;
  std::string read_text(const std::string& name) const;

 private:
  Hdf5File(int64_t file, std::string path) : file_(file), path_(std::move(path)) {}
  int64_t file_ = -1;  // hid_t
  std::string path_;
};

}  // namespace mso
