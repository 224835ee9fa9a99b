// neighbours.mso, the side file beside the shards of a folder: category, embedding and nearest neighbours of every
// sample. Mapped and shared; written whole or not at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/modality.h"
#include "io/neighbour_search.h"

namespace mso {

inline constexpr const char* kNeighbourFile = "neighbours.mso";

// A shard as it was when the file was made; the same facts say that it still is.
struct NeighbourShard {
  std::string name;  // "shard-000000.tar"
  uint64_t bytes = 0, fingerprint = 0, samples = 0;
  bool operator==(const NeighbourShard&) const = default;
};

// What the file says of itself.
struct NeighbourAbout {
  std::string embedder;       // Embedder::name()
  std::string category_rule;  // as mdp.healing.category
  std::string caption;        // as data.caption
  double media_share = 0.5;
  std::vector<NeighbourShard> shards;    // rows are their samples, in this order
  std::vector<std::string> categories;   // sorted; a row holds the number of its own
  uint64_t healthy = 0;
};

// Parts and state of a row in one byte: EmbeddingPart bits, kHealthy, and the Modality above.
inline constexpr uint8_t kHealthy = 4;  // everything in it decodes: may replace others
inline constexpr int kModalityShift = 4;

struct NeighbourLayout {
  uint64_t rows = 0;
  uint32_t media_size = 0, text_size = 0;
  bool half = true;
  uint32_t kept = 8;  // neighbours of a row
};

// Writes one. The arrays are in a mapping of the file to be; fill them (different rows from several threads), then
// finish(). Until then nothing stands under the path; a writer that is destroyed before leaves nothing behind. Error
// (with what to do) where the place is full or forbidden, before anything is computed.
class NeighbourWriter {
 public:
  NeighbourWriter(std::filesystem::path path, NeighbourAbout about, NeighbourLayout layout);
  ~NeighbourWriter();
  NeighbourWriter(const NeighbourWriter&) = delete;
  NeighbourWriter& operator=(const NeighbourWriter&) = delete;

  std::span<uint32_t> categories();  // [rows]
  std::span<uint8_t> states();       // [rows]
  std::span<std::byte> embedding(uint64_t row);
  std::span<uint32_t> neighbours(uint64_t row);  // [kept], kNoRow where there are fewer
  std::span<float> similarities(uint64_t row);   // [kept]
  EmbeddingTable table() const;
  // Checksums, durable, renamed.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr uint32_t kNoRow = 0xffffffffu;

// Reads one. Opening checks the header and what the file says of itself; each block of rows is checked against its own
// checksum when it is first used, so that opening takes no time however many samples there are. Thread-safe.
class NeighbourFile {
 public:
  // Error (kBadData) naming the path for what is no such file, of another version, cut off, or damaged.
  static std::shared_ptr<const NeighbourFile> open(const std::filesystem::path& path);
  ~NeighbourFile();
  NeighbourFile(const NeighbourFile&) = delete;
  NeighbourFile& operator=(const NeighbourFile&) = delete;

  const std::filesystem::path& path() const;
  const NeighbourAbout& about() const;
  const NeighbourLayout& layout() const;

  struct Row {
    uint32_t category = 0;
    uint8_t parts = 0;  // EmbeddingPart
    bool healthy = false;
    Modality modality = Modality::kText;
    std::span<const uint32_t> neighbours;   // rows, best first
    std::span<const float> similarities;
  };
  // Error (kBadData) where the row's block is damaged.
  Row row(uint64_t row) const;
  // The embeddings, all blocks checked at the first call (they are read for that).
  EmbeddingTable checked_table() const;
  // Every checksum. Error (kBadData) naming the first block that is damaged.
  void verify() const;

 private:
  NeighbourFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mso
