#include "ckpt/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/delta.h"

namespace mso {

namespace {
constexpr size_t kHashDigits = 16;
constexpr size_t kHashAt = kHeaderBytes - kHashDigits;
}  // namespace

std::string encode_header(const ShardHeader& header) {
  nlohmann::ordered_json json = {{"mso_snapshot", header.format},
                                 {"run_id", header.run_id},
                                 {"step", header.step},
                                 {"attempt", header.attempt},
                                 {"writer", header.writer},
                                 {"writers", header.writers},
                                 {"level", static_cast<int>(header.level)},
                                 {"exact", header.exact},
                                 {"time", header.time},
                                 {"size", header.size},
                                 {"checksum", hex64(header.checksum)}};
  if (header.delta > 0) json["delta"] = header.delta;
  std::string block = json.dump();
  if (block.size() > kHashAt - 1) throw Error("run id too long", header.run_id.substr(0, 80));
  block.resize(kHashAt - 1, ' ');
  block += '\n';
  return block + hex64(hash64(block));
}

ShardHeader decode_header(std::string_view block, const std::string& path) {
  if (block.size() != kHeaderBytes || hex64(hash64(block.substr(0, kHashAt))) != block.substr(kHashAt))
    throw Error("damaged snapshot header", path, "the file is incomplete or was altered");
  ShardHeader header;
  try {
    nlohmann::json json = nlohmann::json::parse(block.substr(0, kHashAt));
    header.format = json.at("mso_snapshot");
    if (header.format > kShardFormat || header.format < 1)
      throw Error("snapshot of another version", path + " has format " + std::to_string(header.format),
                  "read it with the version of mso that wrote it; this one knows format " +
                      std::to_string(kShardFormat));
    header.run_id = json.at("run_id");
    header.step = json.at("step");
    header.attempt = json.at("attempt");
    header.writer = json.at("writer");
    header.writers = json.at("writers");
    int level = json.at("level");
    header.level = static_cast<SnapshotLevel>(level);
    header.exact = json.at("exact");
    header.delta = json.value("delta", 0);
    header.time = json.at("time");
    header.size = json.at("size");
    header.checksum = std::stoull(json.at("checksum").get<std::string>(), nullptr, 16);
    if (level < 0 || level > 2 || header.writers < 1 || header.writer < 0 || header.writer >= header.writers ||
        header.delta < 0 || header.delta > kMaxDeltas || static_cast<uint64_t>(header.delta) > header.step)
      throw Error("damaged snapshot header", path + ": numbers out of range");
  } catch (const nlohmann::json::exception& e) {
    throw Error("damaged snapshot header", path + ": " + e.what());
  } catch (const std::logic_error& e) {  // stoull
    throw Error("damaged snapshot header", path + ": bad checksum field");
  }
  return header;
}

ShardHeader read_header(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) throw system_error("cannot stat", path);
  if (!S_ISREG(info.st_mode)) throw Error("not a snapshot", path + " is no regular file");
  if (static_cast<uint64_t>(info.st_size) < kHeaderBytes)
    throw Error("damaged snapshot", path + " has " + std::to_string(info.st_size) + " bytes",
                "the file is truncated");
  std::string block(kHeaderBytes, '\0');
  pread_all(fd, block.data(), block.size(), 0, path);
  ShardHeader header = decode_header(block, path);
  if (header.size != static_cast<uint64_t>(info.st_size))
    throw Error(
        "damaged snapshot",
        path + " has " + std::to_string(info.st_size) + " bytes instead of " + std::to_string(header.size),
        "the file was cut or extended");
  return header;
}

ShardHeader read_header(const std::string& path) {
  return read_header(open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).get(), path);
}

ShardHeader verify_shard(const std::string& path) {
  FileDescriptor fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  ShardHeader header = read_header(fd.get(), path);
  auto chunk = std::make_unique_for_overwrite<char[]>(kHashChunkBytes);
  std::vector<uint64_t> hashes;
  for (uint64_t at = kHeaderBytes; at < header.size; at += kHashChunkBytes) {
    size_t n = std::min(kHashChunkBytes, header.size - at);
    pread_all(fd.get(), chunk.get(), n, at, path);
    hashes.push_back(hash64(chunk.get(), n));
  }
  if (hash64(hashes.data(), hashes.size() * sizeof(uint64_t)) != header.checksum)
    throw Error("damaged snapshot", path + ": checksum does not match", "bytes of the file were altered");
  return header;
}

ShardContents read_contents(const std::string& path) {
  ShardContents contents;
  contents.header = read_header(path);
  Hdf5File file = Hdf5File::open(path);
  for (const std::string& name : file.names_in("/buffers")) {
    Hdf5File::Flat flat = file.flat("/buffers/" + name);
    BufferInfo buffer{name, flat.dtype, flat.count, flat.offset, file.read_table("/tables/" + name)};
    const uint64_t size = contents.header.size;
    if (flat.count > 0 && (flat.offset < kHeaderBytes || flat.offset > size ||
                           flat.count > (size - flat.offset) / size_of(flat.dtype)))
      throw Error("bad buffer '" + name + "'", path + ": lies outside of the file");
    for (const TensorSlice& slice : buffer.slices)
      if (slice.begin > slice.end || slice.offset > flat.count ||
          slice.end - slice.begin > flat.count - slice.offset)
        throw Error("bad table of buffer '" + name + "'", path + " tensor '" + slice.name + "'");
    contents.buffers.push_back(std::move(buffer));
  }
  for (const std::string& name : file.names_in("/records"))
    contents.records[name] = file.read_text("/records/" + name);
  return contents;
}

}  // namespace mso
