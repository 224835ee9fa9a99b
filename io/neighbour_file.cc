#include "io/neighbour_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_text.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'M', 'S', 'O', 'N', 'E', 'I', 'G', 'H'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kBlockRows = 4096, kAlign = 64;
constexpr uint64_t kMaxAbout = uint64_t{1} << 30;

// The first bytes of the file, little endian.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t number_bytes;  // 2: float16, 4: float32
  uint64_t file_bytes, rows;
  uint32_t media_size, text_size, kept, zero;
  uint64_t about_bytes, about_hash;
  uint64_t sums_hash;    // of the blocks' checksums
  uint64_t header_hash;  // of all before
};
static_assert(sizeof(Header) == 80);

// Where the parts of the file begin; all follow from the header.
struct Places {
  uint64_t about, sums, categories, states, neighbours, similarities, embeddings, end;
  uint64_t blocks;
};

uint64_t aligned(uint64_t at) { return (at + kAlign - 1) / kAlign * kAlign; }

Places places_of(const NeighbourLayout& layout, uint64_t about_bytes) {
  Places p{};
  p.blocks = (layout.rows + kBlockRows - 1) / kBlockRows;
  p.about = sizeof(Header);
  p.sums = aligned(p.about + about_bytes);
  p.categories = aligned(p.sums + p.blocks * 16);
  p.states = aligned(p.categories + layout.rows * 4);
  p.neighbours = aligned(p.states + layout.rows);
  p.similarities = aligned(p.neighbours + layout.rows * layout.kept * 4);
  p.embeddings = aligned(p.similarities + layout.rows * layout.kept * 4);
  p.end = p.embeddings + layout.rows * (uint64_t{layout.media_size} + layout.text_size) * (layout.half ? 2 : 4);
  return p;
}

// Of one block: {categories, states and neighbours; embeddings}.
struct BlockSums {
  uint64_t lists, embeddings;
};

uint64_t hash_lists(const std::byte* file, const Places& p, const NeighbourLayout& layout, uint64_t block) {
  const uint64_t first = block * kBlockRows, count = std::min(kBlockRows, layout.rows - first);
  Hasher hasher;
  hasher.update(file + p.categories + first * 4, count * 4);
  hasher.update(file + p.states + first, count);
  hasher.update(file + p.neighbours + first * layout.kept * 4, count * layout.kept * 4);
  hasher.update(file + p.similarities + first * layout.kept * 4, count * layout.kept * 4);
  return hasher.digest();
}

uint64_t hash_embeddings(const std::byte* file, const Places& p, const NeighbourLayout& layout, uint64_t block) {
  const uint64_t row = (uint64_t{layout.media_size} + layout.text_size) * (layout.half ? 2 : 4);
  const uint64_t first = block * kBlockRows, count = std::min(kBlockRows, layout.rows - first);
  return hash64(file + p.embeddings + first * row, count * row);
}

std::string about_to_json(const NeighbourAbout& about) {
  nlohmann::ordered_json json = {{"made_by", "mso data index"},
                                 {"embedder", about.embedder},
                                 {"category_rule", about.category_rule},
                                 {"caption", about.caption},
                                 {"media_share", about.media_share},
                                 {"healthy", about.healthy},
                                 {"categories", about.categories}};
  json["shards"] = nlohmann::ordered_json::array();
  for (const NeighbourShard& shard : about.shards)
    json["shards"].push_back({{"name", shard.name},
                              {"bytes", shard.bytes},
                              {"fingerprint", hex64(shard.fingerprint)},
                              {"samples", shard.samples}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

NeighbourAbout about_from_json(std::string_view text) {
  const auto json = parse_shallow_json(text);
  NeighbourAbout about;
  json.at("embedder").get_to(about.embedder);
  json.at("category_rule").get_to(about.category_rule);
  json.at("caption").get_to(about.caption);
  json.at("media_share").get_to(about.media_share);
  json.at("healthy").get_to(about.healthy);
  json.at("categories").get_to(about.categories);
  for (const auto& item : json.at("shards")) {
    NeighbourShard& shard = about.shards.emplace_back();
    item.at("name").get_to(shard.name);
    item.at("bytes").get_to(shard.bytes);
    item.at("samples").get_to(shard.samples);
    shard.fingerprint = std::stoull(item.at("fingerprint").get<std::string>(), nullptr, 16);
  }
  return about;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw Error("the file of embeddings and neighbours cannot be used: " + what, path.string(),
              "make it anew with `mso data index --embed`", ExitCode::kBadData);
}

}  // namespace

struct NeighbourWriter::Impl {
  fs::path path, temporary;
  FileDescriptor fd;
  NeighbourLayout layout;
  Places places{};
  std::string about;
  std::byte* file = nullptr;
};

NeighbourWriter::NeighbourWriter(fs::path path, NeighbourAbout about, NeighbourLayout layout)
    : impl_(std::make_unique<Impl>()) {
  if (layout.rows >= kNoRow)
    throw Error("too many samples for one file of neighbours", path.string(),
                "at most 4294967294; split the folder of shards", ExitCode::kBadUsage);
  impl_->layout = layout;
  impl_->about = about_to_json(about);
  impl_->places = places_of(layout, impl_->about.size());
  impl_->path = std::move(path);
  impl_->temporary = impl_->path;
  impl_->temporary += ".tmp" + std::to_string(::getpid());
  impl_->fd = open_file(impl_->temporary, O_RDWR | O_CREAT | O_TRUNC);
  // All of its space is taken now: a store into a mapping has no way to say that the disk is full.
  const int error = ::posix_fallocate(impl_->fd.get(), 0, static_cast<off_t>(impl_->places.end));
  void* mapped = error != 0 ? MAP_FAILED
                            : ::mmap(nullptr, impl_->places.end, PROT_READ | PROT_WRITE, MAP_SHARED, impl_->fd.get(), 0);
  if (mapped == MAP_FAILED) {
    const Error failure = system_error("cannot write", impl_->temporary.string(), error != 0 ? error : errno);
    ::unlink(impl_->temporary.c_str());
    throw failure;
  }
  impl_->file = static_cast<std::byte*>(mapped);
  std::memcpy(impl_->file + impl_->places.about, impl_->about.data(), impl_->about.size());
}

NeighbourWriter::~NeighbourWriter() {
  if (impl_->file) ::munmap(impl_->file, impl_->places.end);
  if (!impl_->temporary.empty()) ::unlink(impl_->temporary.c_str());
}

std::span<uint32_t> NeighbourWriter::categories() {
  return {reinterpret_cast<uint32_t*>(impl_->file + impl_->places.categories), impl_->layout.rows};
}

std::span<uint8_t> NeighbourWriter::states() {
  return {reinterpret_cast<uint8_t*>(impl_->file + impl_->places.states), impl_->layout.rows};
}

std::span<std::byte> NeighbourWriter::embedding(uint64_t row) {
  const size_t bytes = table().row_bytes();
  return {impl_->file + impl_->places.embeddings + row * bytes, bytes};
}

std::span<uint32_t> NeighbourWriter::neighbours(uint64_t row) {
  return {reinterpret_cast<uint32_t*>(impl_->file + impl_->places.neighbours) + row * impl_->layout.kept,
          impl_->layout.kept};
}

std::span<float> NeighbourWriter::similarities(uint64_t row) {
  return {reinterpret_cast<float*>(impl_->file + impl_->places.similarities) + row * impl_->layout.kept,
          impl_->layout.kept};
}

EmbeddingTable NeighbourWriter::table() const {
  const NeighbourLayout& layout = impl_->layout;
  return {impl_->file + impl_->places.embeddings, layout.rows, layout.media_size, layout.text_size, layout.half};
}

void NeighbourWriter::finish() {
  Impl& w = *impl_;
  std::vector<BlockSums> sums(w.places.blocks);
  for (uint64_t block = 0; block < w.places.blocks; ++block)
    sums[block] = {hash_lists(w.file, w.places, w.layout, block), hash_embeddings(w.file, w.places, w.layout, block)};
  if (!sums.empty()) std::memcpy(w.file + w.places.sums, sums.data(), sums.size() * sizeof(BlockSums));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.number_bytes = w.layout.half ? 2 : 4;
  header.file_bytes = w.places.end;
  header.rows = w.layout.rows;
  header.media_size = w.layout.media_size;
  header.text_size = w.layout.text_size;
  header.kept = w.layout.kept;
  header.about_bytes = w.about.size();
  header.about_hash = hash64(w.about);
  header.sums_hash = hash64(sums.data(), sums.size() * sizeof(BlockSums));
  header.header_hash = hash64(&header, offsetof(Header, header_hash));
  std::memcpy(w.file, &header, sizeof header);
  if (::msync(w.file, w.places.end, MS_SYNC) != 0 || ::fsync(w.fd.get()) != 0)
    throw system_error("cannot write", w.temporary.string());
  rename_path(w.temporary, w.path);
  w.temporary.clear();
  sync_directory(w.path.has_parent_path() ? w.path.parent_path() : fs::path("."));
}

struct NeighbourFile::Impl {
  fs::path path;
  NeighbourAbout about;
  NeighbourLayout layout;
  Places places{};
  const std::byte* file = nullptr;
  uint64_t bytes = 0;
  // Per block, one byte each for lists and embeddings: 0 not looked at yet, 1 good, 2 damaged.
  mutable std::unique_ptr<std::atomic<uint8_t>[]> lists_checked, embeddings_checked;

  BlockSums sums(uint64_t block) const {
    BlockSums sums;
    std::memcpy(&sums, file + places.sums + block * sizeof sums, sizeof sums);
    return sums;
  }
  void check(uint64_t block, bool lists) const {
    std::atomic<uint8_t>& checked = (lists ? lists_checked : embeddings_checked)[block];
    uint8_t state = checked.load(std::memory_order_relaxed);
    if (state == 0) {
      const bool good = lists ? hash_lists(file, places, layout, block) == sums(block).lists
                              : hash_embeddings(file, places, layout, block) == sums(block).embeddings;
      checked = state = good ? 1 : 2;
    }
    if (state == 2)
      refuse(path, std::string("the checksum of ") + (lists ? "the neighbours" : "the embeddings") + " of rows " +
                       std::to_string(block * kBlockRows) + " to " +
                       std::to_string(std::min((block + 1) * kBlockRows, layout.rows) - 1) + " is wrong");
  }
};

NeighbourFile::NeighbourFile() : impl_(std::make_unique<Impl>()) {}

NeighbourFile::~NeighbourFile() {
  if (impl_->file) ::munmap(const_cast<std::byte*>(impl_->file), impl_->bytes);
}

std::shared_ptr<const NeighbourFile> NeighbourFile::open(const fs::path& path) {
  std::shared_ptr<NeighbourFile> opened(new NeighbourFile());
  Impl& f = *opened->impl_;
  f.path = path;
  const FileDescriptor fd = open_file(path, O_RDONLY);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot stat", path.string());
  f.bytes = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || f.bytes < sizeof(Header)) refuse(path, "it is too short");
  void* mapped = ::mmap(nullptr, f.bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) throw system_error("cannot map", path.string());
  f.file = static_cast<const std::byte*>(mapped);

  Header header;
  std::memcpy(&header, f.file, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse(path, "it is no such file");
  if (header.version != kVersion)
    refuse(path, "it has version " + std::to_string(header.version) + ", this program reads " + std::to_string(kVersion));
  if (header.header_hash != hash64(&header, offsetof(Header, header_hash))) refuse(path, "its header is damaged");
  if (header.file_bytes != f.bytes) refuse(path, "it is cut off");
  // Bounds that keep every product below 2^64.
  if (header.rows >= kNoRow || header.media_size > (1u << 20) || header.text_size > (1u << 20) ||
      header.kept > 4096 || (header.number_bytes != 2 && header.number_bytes != 4) || header.about_bytes > kMaxAbout)
    refuse(path, "its header is damaged");
  f.layout = {header.rows, header.media_size, header.text_size, header.number_bytes == 2, header.kept};
  f.places = places_of(f.layout, header.about_bytes);
  if (f.places.end != f.bytes) refuse(path, "its header is damaged");
  const std::string_view about(reinterpret_cast<const char*>(f.file + f.places.about), header.about_bytes);
  if (hash64(about) != header.about_hash ||
      hash64(f.file + f.places.sums, f.places.blocks * sizeof(BlockSums)) != header.sums_hash)
    refuse(path, "its description is damaged");
  try {
    f.about = about_from_json(about);
  } catch (const std::exception& error) {
    refuse(path, error.what());
  }
  uint64_t samples = 0;
  for (const NeighbourShard& shard : f.about.shards) {
    if (shard.samples > header.rows - samples) refuse(path, "its shards do not fit its rows");
    samples += shard.samples;
  }
  if (samples != header.rows) refuse(path, "its shards do not fit its rows");
  f.lists_checked = std::make_unique<std::atomic<uint8_t>[]>(f.places.blocks);
  f.embeddings_checked = std::make_unique<std::atomic<uint8_t>[]>(f.places.blocks);
  return opened;
}

const fs::path& NeighbourFile::path() const { return impl_->path; }
const NeighbourAbout& NeighbourFile::about() const { return impl_->about; }
const NeighbourLayout& NeighbourFile::layout() const { return impl_->layout; }

NeighbourFile::Row NeighbourFile::row(uint64_t row) const {
  const Impl& f = *impl_;
  if (row >= f.layout.rows) throw Error("no such row", f.path.string() + ": " + std::to_string(row));
  f.check(row / kBlockRows, true);
  Row out;
  std::memcpy(&out.category, f.file + f.places.categories + row * 4, 4);
  const uint8_t state = static_cast<uint8_t>(f.file[f.places.states + row]);
  out.parts = state & (kMediaPart | kTextPart);
  out.healthy = (state & kHealthy) != 0;
  if (out.category >= f.about.categories.size() || (state >> kModalityShift) >= static_cast<int>(kModalities))
    refuse(f.path, "row " + std::to_string(row) + " is impossible");
  out.modality = static_cast<Modality>(state >> kModalityShift);
  const auto* rows = reinterpret_cast<const uint32_t*>(f.file + f.places.neighbours) + row * f.layout.kept;
  const auto* similarities = reinterpret_cast<const float*>(f.file + f.places.similarities) + row * f.layout.kept;
  size_t count = 0;
  while (count < f.layout.kept && rows[count] != kNoRow) {
    if (rows[count] >= f.layout.rows || !std::isfinite(similarities[count]))
      refuse(f.path, "a neighbour of row " + std::to_string(row) + " is impossible");
    ++count;
  }
  out.neighbours = {rows, count};
  out.similarities = {similarities, count};
  return out;
}

EmbeddingTable NeighbourFile::checked_table() const {
  const Impl& f = *impl_;
  for (uint64_t block = 0; block < f.places.blocks; ++block) f.check(block, false);
  return {f.file + f.places.embeddings, f.layout.rows, f.layout.media_size, f.layout.text_size, f.layout.half};
}

void NeighbourFile::verify() const {
  for (uint64_t block = 0; block < impl_->places.blocks; ++block) impl_->check(block, true);
  (void)checked_table();
}

}  // namespace mso
