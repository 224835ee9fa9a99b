#include "base/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

namespace mso {

namespace {

using Json = nlohmann::json;
constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr int kMaxDims = 64;

[[noreturn]] void refuse(const std::string& origin, const std::string& why) {
  throw Error("not a valid safetensors file", origin + ": " + why,
              "the file is damaged or incomplete; fetch or write it again");
}

uint64_t checked_natural(const Json& value, const std::string& origin, const std::string& name,
                         const char* what) {
  if (!value.is_number_unsigned())
    refuse(origin, "tensor '" + name + "': " + what + " is not a natural number");
  return value.get<uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& name, const Json& value, uint64_t data_size,
                             const std::string& origin) {
  auto fail = [&](const std::string& why) { refuse(origin, "tensor '" + name + "': " + why); };
  if (!value.is_object()) fail("its description is not an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key)) fail(std::string("no '") + key + "'");
  if (value.size() != 3) fail("unknown keys beside dtype, shape and data_offsets");
  SafetensorsEntry entry;
  if (!value["dtype"].is_string()) fail("dtype is not a text");
  try {
    entry.dtype = dtype_from_name(value["dtype"].get<std::string>());
  } catch (const Error&) {
    fail("element type " + value["dtype"].get<std::string>() + " is not supported");
  }
  const Json& shape = value["shape"];
  if (!shape.is_array() || shape.size() > kMaxDims) fail("shape is not a list of at most 64 sizes");
  // The product is kept below 2^62 with zero-sized dimensions counted as one, so that no partial product
  // overflows.
  uint64_t count = 1, bound = 1;
  for (const Json& dim : shape) {
    uint64_t size = checked_natural(dim, origin, name, "a size");
    if (size > (uint64_t{1} << 62) / std::max<uint64_t>(bound, 1)) fail("its shape overflows");
    bound *= std::max<uint64_t>(size, 1);
    count *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) fail("data_offsets is not a pair");
  entry.begin = checked_natural(offsets[0], origin, name, "an offset");
  entry.end = checked_natural(offsets[1], origin, name, "an offset");
  if (entry.begin > entry.end || entry.end > data_size)
    fail("bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) + " are outside the " +
         std::to_string(data_size) + " bytes of data");
  if (count > (uint64_t{1} << 60) || count * size_of(entry.dtype) != entry.end - entry.begin)
    fail("its shape does not match its " + std::to_string(entry.end - entry.begin) + " bytes");
  return entry;
}

float half_to_float(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = (half >> 10) & 31,
           mantissa = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -value : value;
}

std::string header_text(const std::vector<SafetensorsItem>& items,
                        const std::map<std::string, std::string>& metadata) {
  // nlohmann sorts object keys; the reference implementation keeps file order, which readers do not need.
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    uint64_t bytes = size_of(item.dtype);
    for (int64_t dim : item.shape) bytes *= static_cast<uint64_t>(dim);
    if (header.contains(item.name))
      throw Error("cannot write safetensors", "tensor '" + item.name + "' is given twice");
    header[item.name] = {
        {"dtype", name_of(item.dtype)}, {"shape", item.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

uint64_t bytes_of(const SafetensorsItem& item) {
  uint64_t bytes = size_of(item.dtype);
  for (int64_t dim : item.shape) bytes *= static_cast<uint64_t>(dim);
  return bytes;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view start, uint64_t file_size,
                                           const std::string& origin) {
  if (file_size < 8 || start.size() < 8) refuse(origin, "shorter than 8 bytes");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length > kMaxHeader)
    refuse(origin, "header of " + std::to_string(length) + " bytes (at most 100 MB are allowed)");
  if (length > file_size - 8 || length > start.size() - 8) refuse(origin, "the header is cut off");
  SafetensorsHeader header;
  header.data_offset = 8 + length;
  std::string_view text = start.substr(8, length);
  if (text.empty() || text.front() != '{') refuse(origin, "the header is not a JSON object");

  // Duplicate keys would make two readers see two files; nlohmann keeps the last silently, so they are
  // counted here. Nesting is bounded for the same reason: the format needs three levels.
  std::set<std::string> keys;
  bool duplicate = false, deep = false;
  Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1)
      duplicate |= !keys.insert(parsed.get<std::string>()).second;
    if (depth > 4) deep = true;
    return !deep;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& e) {
    refuse(origin, std::string("the header is not JSON (") + e.what() + ")");
  }
  if (deep) refuse(origin, "the header is nested too deeply");
  if (duplicate) refuse(origin, "a tensor is listed twice");
  if (!json.is_object()) refuse(origin, "the header is not a JSON object");

  const uint64_t data_size = file_size - header.data_offset;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) refuse(origin, "__metadata__ is not an object");
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string()) refuse(origin, "__metadata__." + key + " is not a text");
        header.metadata[key] = text_value.get<std::string>();
      }
      continue;
    }
    SafetensorsEntry entry = parse_entry(name, value, data_size, origin);
    ranges.emplace_back(entry.begin, entry.end);
    header.tensors.emplace(name, std::move(entry));
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (auto [begin, end] : ranges) {
    if (begin < covered) refuse(origin, "two tensors overlap at byte " + std::to_string(begin));
    if (begin > covered)
      refuse(origin,
             "bytes " + std::to_string(covered) + " to " + std::to_string(begin) + " belong to no tensor");
    covered = end;
  }
  if (covered != data_size) refuse(origin, "bytes after " + std::to_string(covered) + " belong to no tensor");
  return header;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  FileDescriptor fd = open_file(path_, O_RDONLY);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot stat", path_.string());
  if (!S_ISREG(info.st_mode))
    throw Error("cannot read", path_.string() + " is not a file", "give a .safetensors file");
  size_ = static_cast<uint64_t>(info.st_size);
  if (size_ == 0) refuse(path_.string(), "the file is empty");
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapping == MAP_FAILED) throw system_error("cannot map", path_.string());
  data_ = static_cast<const std::byte*>(mapping);
  try {
    header_ = parse_safetensors_header({reinterpret_cast<const char*>(data_), size_}, size_, path_.string());
  } catch (...) {
    ::munmap(const_cast<std::byte*>(data_), size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::munmap(const_cast<std::byte*>(data_), size_);
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  auto it = header_.tensors.find(name);
  if (it == header_.tensors.end()) throw Error("no such tensor", name + " in " + path_.string());
  return it->second;
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  return {data_ + header_.data_offset + e.begin, e.end - e.begin};
}

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder_or_file) : path_(folder_or_file) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path_)) {
    files_.push_back(std::make_unique<SafetensorsFile>(path_));
    for (const auto& [name, entry] : files_[0]->header().tensors) where_[name] = 0;
    return;
  }
  const fs::path single = path_ / "model.safetensors", index = path_ / "model.safetensors.index.json";
  if (fs::exists(single)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    for (const auto& [name, entry] : files_[0]->header().tensors) where_[name] = 0;
    return;
  }
  if (!fs::exists(index))
    throw Error("no weights", path_.string(),
                "a model folder holds model.safetensors, or model.safetensors.index.json and its shards");
  Json map;
  try {
    map = parse_shallow_json<Json>(read_file(index, kMaxHeader)).at("weight_map");
  } catch (const Json::exception& e) {
    throw Error("cannot read the index of shards", index.string(), e.what());
  }
  if (!map.is_object())
    throw Error("cannot read the index of shards", index.string(), "weight_map is not an object");
  std::map<std::string, size_t> opened;
  for (const auto& [name, value] : map.items()) {
    if (!value.is_string())
      throw Error("cannot read the index of shards", index.string() + ", tensor " + name);
    std::string file = value.get<std::string>();
    if (file.empty() || file.find('/') != std::string::npos || file == "." ||
        file == "..")  // stay inside the folder
      throw Error("cannot read the index of shards", index.string() + ": shard '" + file + "'",
                  "shards lie beside the index");
    auto [it, fresh] = opened.emplace(file, files_.size());
    if (fresh) files_.push_back(std::make_unique<SafetensorsFile>(path_ / file));
    files_[it->second]->entry(name);  // Error naming the file when the shard lacks it
    where_[name] = it->second;
  }
}

const SafetensorsFile& SafetensorsFolder::file(const std::string& name) const {
  auto it = where_.find(name);
  if (it == where_.end()) throw Error("no such tensor", name + " in " + path_.string());
  return *files_[it->second];
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> result;
  for (const auto& [name, index] : where_) result.push_back(name);
  return result;
}

const SafetensorsEntry& SafetensorsFolder::entry(const std::string& name) const {
  return file(name).entry(name);
}
const std::filesystem::path& SafetensorsFolder::file_of(const std::string& name) const {
  return file(name).path();
}

HostTensor SafetensorsFolder::read(const std::string& name) const {
  const SafetensorsFile& source = file(name);
  std::span<const std::byte> bytes = source.bytes(name);
  return {source.entry(name).dtype, source.entry(name).shape, {bytes.begin(), bytes.end()}};
}

HostTensor SafetensorsFolder::read_rows(const std::string& name, int64_t begin, int64_t end) const {
  const SafetensorsFile& source = file(name);
  const SafetensorsEntry& e = source.entry(name);
  if (e.shape.empty() || begin < 0 || begin > end || end > e.shape[0])
    throw Error("rows out of range", name + " in " + source.path().string() + ": " + std::to_string(begin) +
                                         " to " + std::to_string(end));
  std::span<const std::byte> bytes = source.bytes(name);
  const uint64_t row = e.shape[0] == 0 ? 0 : bytes.size() / static_cast<uint64_t>(e.shape[0]);
  bytes = bytes.subspan(row * begin, row * (end - begin));
  HostTensor result{e.dtype, e.shape, {bytes.begin(), bytes.end()}};
  result.shape[0] = end - begin;
  return result;
}

void SafetensorsFolder::read_f32(const std::string& name, uint64_t begin, uint64_t end, float* out) const {
  const SafetensorsFile& source = file(name);
  const SafetensorsEntry& e = source.entry(name);
  if (begin > end || end > static_cast<uint64_t>(e.count()))
    throw Error("elements out of range", name + " in " + source.path().string());
  try {
    convert_to_f32(e.dtype, source.bytes(name).data() + begin * size_of(e.dtype), out, end - begin);
  } catch (const Error& error) {
    throw Error(error.what_failed(), name + " in " + source.path().string(), error.hint());
  }
}

void convert_to_f32(DType dtype, const std::byte* from, float* to, size_t count) {
  switch (dtype) {
    case DType::kF32:
      if (count > 0) std::memcpy(to, from, count * sizeof(float));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        to[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      }
      return;
    case DType::kF16:
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        to[i] = half_to_float(bits);
      }
      return;
    case DType::kF64:
      for (size_t i = 0; i < count; ++i) {
        double value;
        std::memcpy(&value, from + 8 * i, 8);
        to[i] = static_cast<float>(value);
      }
      return;
    default:
      throw Error("weights are not floating-point numbers", name_of(dtype),
                  "F16, BF16, F32 and F64 are read");
  }
}

void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata) {
  std::stable_sort(items.begin(), items.end(), [](const SafetensorsItem& a, const SafetensorsItem& b) {
    size_t wide_a = size_of(a.dtype), wide_b = size_of(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  const std::string header = header_text(items, metadata);
  std::filesystem::path beside = path;
  beside += ".tmp-" + std::to_string(::getpid());
  try {
    FileDescriptor fd = open_file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    unsigned char length[8];
    for (int i = 0; i < 8; ++i)
      length[i] = static_cast<unsigned char>(static_cast<uint64_t>(header.size()) >> (8 * i));
    write_all(fd.get(), length, 8, beside);
    write_all(fd.get(), header.data(), header.size(), beside);
    for (const SafetensorsItem& item : items) write_all(fd.get(), item.data, bytes_of(item), beside);
    if (::fsync(fd.get()) != 0) throw system_error("cannot sync", beside.string());
    fd.reset();
    rename_path(beside, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<SafetensorsItem>& items,
                              uint64_t shard_bytes) {
  std::vector<std::vector<SafetensorsItem>> shards(1);
  uint64_t size = 0, total = 0;
  for (const SafetensorsItem& item : items) {
    uint64_t bytes = bytes_of(item);
    if (size + bytes > shard_bytes && !shards.back().empty()) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(item);
    size += bytes;
    total += bytes;
  }
  if (shards.size() == 1) {
    write_safetensors(folder / "model.safetensors", shards[0]);
    return;
  }
  Json map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    for (const SafetensorsItem& item : shards[i]) map[item.name] = name;
    write_safetensors(folder / name, std::move(shards[i]));
  }
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_durably(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace mso
