#include "ckpt/shard_writer.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/kill_point.h"

namespace mso {

StateView view_for_level(const StateView& view, SnapshotLevel level, bool optimizer) {
  StateView part;
  part.step = view.step;
  for (const StateBuffer& buffer : view.buffers) {
    if (buffer.name.starts_with("gradient.")) continue;
    if (level == SnapshotLevel::kL1 && !optimizer && buffer.name != "master") continue;
    part.buffers.push_back(buffer);
  }
  for (const auto& [name, text] : view.records) {
    if (name == "update") continue;
    if (level == SnapshotLevel::kL0 && (name == "tokenizer" || name == "model_files")) continue;
    if (level != SnapshotLevel::kL2 && name == "ledger") continue;
    part.records.emplace(name, text);
  }
  return part;
}

ShardImage::ShardImage(const StateView& view, ShardHeader header) : header_(std::move(header)) {
  memory_ = FileDescriptor(::memfd_create("mso-snapshot", MFD_CLOEXEC));
  if (!memory_.valid()) throw system_error("cannot reserve memory", "layout of a snapshot");
  std::vector<Extent> bulk;
  {
    Hdf5File file = Hdf5File::create(memory_.get(), "layout of a snapshot");
    file.create_group("/buffers");
    file.create_group("/tables");
    file.create_group("/records");
    // Bulk first: its place then depends on the buffers alone, and a refilled file keeps it.
    for (const StateBuffer& buffer : view.buffers) {
      uint64_t offset = file.create_flat("/buffers/" + buffer.name, buffer.dtype, buffer.count);
      if (buffer.count > 0)
        bulk.push_back({offset, buffer.count * size_of(buffer.dtype), static_cast<const char*>(buffer.data)});
    }
    for (const StateBuffer& buffer : view.buffers) file.write_table("/tables/" + buffer.name, buffer.slices);
    for (const auto& [name, text] : view.records) file.write_text("/records/" + name, text);
    file.set_attribute("format", kShardFormat);
    file.set_attribute("run_id", header_.run_id);
    file.set_attribute("step", static_cast<int64_t>(header_.step));
    file.set_attribute("attempt", header_.attempt);
    file.set_attribute("writer", header_.writer);
    file.set_attribute("writers", header_.writers);
    file.set_attribute("level", static_cast<int64_t>(header_.level));
    file.set_attribute("exact", header_.exact ? 1 : 0);
    if (header_.delta > 0) file.set_attribute("delta", header_.delta);
    file.close();
  }
  struct stat info;
  if (::fstat(memory_.get(), &info) != 0) throw system_error("cannot stat", "layout of a snapshot");
  header_.size = info.st_size;
  std::sort(bulk.begin(), bulk.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  // A dataset that ends the file may lie past what HDF5 wrote.
  if (!bulk.empty()) header_.size = std::max(header_.size, bulk.back().offset + bulk.back().size);
  if (header_.size > static_cast<uint64_t>(info.st_size) && ::ftruncate(memory_.get(), header_.size) != 0)
    throw system_error("cannot reserve memory", "layout of a snapshot");
  void* mapped = ::mmap(nullptr, header_.size, PROT_READ, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) throw system_error("cannot map memory", "layout of a snapshot");
  mapped_ = static_cast<const char*>(mapped);
  uint64_t at = kHeaderBytes;
  for (const Extent& extent : bulk) {
    if (extent.offset > at) extents_.push_back({at, extent.offset - at, mapped_ + at});
    extents_.push_back(extent);
    at = extent.offset + extent.size;
  }
  if (header_.size > at) extents_.push_back({at, header_.size - at, mapped_ + at});
}

ShardImage::~ShardImage() {
  if (mapped_) ::munmap(const_cast<char*>(mapped_), header_.size);
}

ShardHeader ShardImage::write(int fd, const std::string& path, const WriteOptions& options) {
  struct stat info;
  if (::fstat(fd, &info) != 0) throw system_error("cannot stat", path);
  // A reused file loses its old header first: half-written, it is nothing.
  pwrite_all(fd, std::string(kHeaderBytes, '\0').data(), kHeaderBytes, 0, path);
  if (static_cast<uint64_t>(info.st_size) > header_.size && ::ftruncate(fd, header_.size) != 0)
    throw system_error("cannot cut", path);
  std::vector<uint64_t> hashes;
  size_t extent = 0;
  const uint64_t half = header_.size / 2;
  bool half_passed = false;
  for (uint64_t begin = kHeaderBytes; begin < header_.size; begin += kHashChunkBytes) {
    const uint64_t end = std::min(begin + kHashChunkBytes, header_.size);
    uint64_t at = begin;
    auto piece_at = [&]() -> std::pair<const char*, size_t> {
      while (extents_[extent].offset + extents_[extent].size <= at) ++extent;
      const Extent& e = extents_[extent];
      return {e.data + (at - e.offset), std::min(end, e.offset + e.size) - at};
    };
    auto [first, first_size] = piece_at();
    if (first_size == end - begin) {
      hashes.push_back(hash64(first, first_size));
      pwrite_all(fd, first, first_size, at, path);
    } else {
      Hasher hasher;
      while (at < end) {
        auto [data, size] = piece_at();
        hasher.update(data, size);
        pwrite_all(fd, data, size, at, path);
        at += size;
      }
      hashes.push_back(hasher.digest());
    }
    if (!half_passed && end >= half) {
      half_passed = true;
      kill_point("_after_half_written", options.kill_prefix);
    }
    if (options.after_piece) options.after_piece(end - begin);
  }
  kill_point("_before_header", options.kill_prefix);
  header_.checksum = hash64(hashes.data(), hashes.size() * sizeof(uint64_t));
  std::string block = encode_header(header_);
  pwrite_all(fd, block.data(), block.size(), 0, path);
  return header_;
}

}  // namespace mso
