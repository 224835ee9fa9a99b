// Exact nearest neighbours by cosine similarity, by blocks of a matrix product. Pure: vectors in, lists out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mso {

// Parts of an embedding a sample has; also what a search compares.
enum EmbeddingPart : uint8_t { kMediaPart = 1, kTextPart = 2 };

// Rows of [media_size + text_size] numbers, float16 or float32, somewhere in memory; a row's two parts carry their
// shares already, and a part the sample does not have is zeros.
struct EmbeddingTable {
  const std::byte* data = nullptr;
  uint64_t rows = 0;
  uint32_t media_size = 0, text_size = 0;
  bool half = true;

  size_t size() const { return size_t{media_size} + text_size; }
  size_t row_bytes() const { return size() * (half ? 2 : 4); }
  // The named parts of a row, as float32; returns how many numbers. The others are left out, not zeroed.
  size_t load(uint64_t row, uint8_t parts, float* out) const;
};

struct FoundNeighbour {
  uint32_t row = 0;
  float similarity = 0;
  bool operator==(const FoundNeighbour&) const = default;
};

// cos of the `parts` of two rows, in float64; 0 where one of them is all zeros.
double cosine(const EmbeddingTable& table, uint64_t a, uint64_t b, uint8_t parts);

// A search of `queries` among `candidates` (ascending rows), both within one group; a query never finds itself.
struct SearchGroup {
  std::vector<uint32_t> queries, candidates;
  uint8_t parts = 0;  // what is compared: the parts of the queries
};

// For every query its `k` nearest candidates, best first, equals by row: found(query row, neighbours), called from
// several threads, once for each query. The lists do not depend on the number of threads. Similarities are those of
// cosine(); where more than 2 k candidates lie within float32's rounding (some 1e-6) of each other, any of them may be
// taken for the last places. `done` counts queries. Time: queries × candidates × size.
void search_neighbours(const EmbeddingTable& table, std::span<const SearchGroup> groups, size_t k, int threads,
                       const std::function<void(uint32_t, std::span<const FoundNeighbour>)>& found,
                       std::atomic<uint64_t>* done = nullptr);

// One query, without blocks, for what the stored lists do not hold: the `k` nearest of `candidates` at or above
// `at_least`.
std::vector<FoundNeighbour> scan_neighbours(const EmbeddingTable& table, uint32_t query, uint8_t parts,
                                            std::span<const uint32_t> candidates, size_t k, double at_least);

}  // namespace mso
