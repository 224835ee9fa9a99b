#include "io/neighbour_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/simd.h"
#include "io/half.h"

namespace mso {
namespace {

constexpr size_t kQueries = 64;  // of a block
constexpr size_t kTile = 256;    // candidates of a tile
using Lanes = float __attribute__((vector_size(64)));
constexpr size_t kLanes = 16;

// out[q][c] = Σ_j queries[q][j] tile[j][c], summed in the order of j for each pair, so that a value does not depend on
// where in a block the pair stands. `queries` has a multiple of 4 rows.
MSO_SIMD_CLONES void block_product(const float* queries, size_t count, const float* tile, size_t size, float* out) {
  for (size_t q = 0; q < count; q += 4) {
    const float *q0 = queries + q * size, *q1 = q0 + size, *q2 = q1 + size, *q3 = q2 + size;
    for (size_t c = 0; c < kTile; c += kLanes) {
      Lanes s0{}, s1{}, s2{}, s3{};
      for (size_t j = 0; j < size; ++j) {
        Lanes t;
        std::memcpy(&t, tile + j * kTile + c, sizeof t);
        s0 += q0[j] * t;
        s1 += q1[j] * t;
        s2 += q2[j] * t;
        s3 += q3[j] * t;
      }
      std::memcpy(out + q * kTile + c, &s0, sizeof s0);
      std::memcpy(out + (q + 1) * kTile + c, &s1, sizeof s1);
      std::memcpy(out + (q + 2) * kTile + c, &s2, sizeof s2);
      std::memcpy(out + (q + 3) * kTile + c, &s3, sizeof s3);
    }
  }
}

bool better(const FoundNeighbour& a, const FoundNeighbour& b) {
  return a.similarity != b.similarity ? a.similarity > b.similarity : a.row < b.row;
}

// The best `limit` so far, as a heap with the worst on top.
void offer(std::vector<FoundNeighbour>& heap, size_t limit, const FoundNeighbour& found) {
  if (heap.size() < limit) {
    heap.push_back(found);
    std::push_heap(heap.begin(), heap.end(), better);
  } else if (better(found, heap.front())) {
    std::pop_heap(heap.begin(), heap.end(), better);
    heap.back() = found;
    std::push_heap(heap.begin(), heap.end(), better);
  }
}

// Unit length of the parts, in float32; zeros stay zeros.
void load_unit(const EmbeddingTable& table, uint64_t row, uint8_t parts, float* out, size_t size) {
  table.load(row, parts, out);
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(out[i]) * out[i];
  const double factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<float>(out[i] * factor);
}

size_t size_of_parts(const EmbeddingTable& table, uint8_t parts) {
  return ((parts & kMediaPart) != 0 ? table.media_size : 0) + ((parts & kTextPart) != 0 ? table.text_size : 0);
}

class BlockSearch {
 public:
  BlockSearch(const EmbeddingTable& table, const SearchGroup& group, size_t k)
      : table_(table), group_(group), k_(k), size_(size_of_parts(table, group.parts)) {}

  void run(size_t first, const std::function<void(uint32_t, std::span<const FoundNeighbour>)>& found) {
    const size_t count = std::min(kQueries, group_.queries.size() - first), padded = (count + 3) / 4 * 4;
    queries_.assign(padded * size_, 0);
    for (size_t q = 0; q < count; ++q)
      load_unit(table_, group_.queries[first + q], group_.parts, queries_.data() + q * size_, size_);
    heaps_.assign(count, {});
    tile_.resize(size_ * kTile);
    products_.resize(kQueries * kTile);
    row_.resize(size_);
    for (size_t start = 0; start < group_.candidates.size(); start += kTile) {
      const size_t width = std::min(kTile, group_.candidates.size() - start);
      if (width < kTile) std::fill(tile_.begin(), tile_.end(), 0.0f);
      for (size_t c = 0; c < width; ++c) {
        load_unit(table_, group_.candidates[start + c], group_.parts, row_.data(), size_);
        for (size_t j = 0; j < size_; ++j) tile_[j * kTile + c] = row_[j];
      }
      block_product(queries_.data(), padded, tile_.data(), size_, products_.data());
      for (size_t q = 0; q < count; ++q)
        for (size_t c = 0; c < width; ++c) {
          const FoundNeighbour at{group_.candidates[start + c], products_[q * kTile + c]};
          if (at.row != group_.queries[first + q]) offer(heaps_[q], 2 * k_, at);
        }
    }
    for (size_t q = 0; q < count; ++q) {
      // The float32 product chose; float64 decides order and value.
      for (FoundNeighbour& f : heaps_[q])
        f.similarity = static_cast<float>(cosine(table_, group_.queries[first + q], f.row, group_.parts));
      std::sort(heaps_[q].begin(), heaps_[q].end(), better);
      if (heaps_[q].size() > k_) heaps_[q].resize(k_);
      found(group_.queries[first + q], heaps_[q]);
    }
  }

 private:
  const EmbeddingTable& table_;
  const SearchGroup& group_;
  size_t k_, size_;
  std::vector<float> queries_, tile_, products_, row_;
  std::vector<std::vector<FoundNeighbour>> heaps_;
};

}  // namespace

size_t EmbeddingTable::load(uint64_t row, uint8_t parts, float* out) const {
  const std::byte* from = data + row * row_bytes();
  size_t written = 0;
  auto copy = [&](size_t start, size_t count) {
    if (half) {
      for (size_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, from + (start + i) * 2, 2);
        out[written + i] = from_half(bits);
      }
    } else {
      std::memcpy(out + written, from + start * 4, count * 4);
    }
    written += count;
  };
  if ((parts & kMediaPart) != 0) copy(0, media_size);
  if ((parts & kTextPart) != 0) copy(media_size, text_size);
  return written;
}

double cosine(const EmbeddingTable& table, uint64_t a, uint64_t b, uint8_t parts) {
  thread_local std::vector<float> left, right;
  left.resize(table.size());
  right.resize(table.size());
  const size_t size = table.load(a, parts, left.data());
  table.load(b, parts, right.data());
  double product = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < size; ++i) {
    const double x = left[i], y = right[i];
    product += x * y, aa += x * x, bb += y * y;
  }
  return aa > 0 && bb > 0 ? product / std::sqrt(aa * bb) : 0;
}

void search_neighbours(const EmbeddingTable& table, std::span<const SearchGroup> groups, size_t k, int threads,
                       const std::function<void(uint32_t, std::span<const FoundNeighbour>)>& found,
                       std::atomic<uint64_t>* done) {
  struct Task {
    const SearchGroup* group;
    size_t first;
  };
  std::vector<Task> tasks;
  for (const SearchGroup& group : groups)
    for (size_t first = 0; first < group.queries.size(); first += kQueries) tasks.push_back({&group, first});
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> workers;
  for (int t = 0; t < std::max(1, threads); ++t)
    workers.emplace_back([&] {
      for (size_t i; (i = next++) < tasks.size();) {
        BlockSearch(table, *tasks[i].group, k).run(tasks[i].first, found);
        if (done) *done += std::min(kQueries, tasks[i].group->queries.size() - tasks[i].first);
      }
    });
}

std::vector<FoundNeighbour> scan_neighbours(const EmbeddingTable& table, uint32_t query, uint8_t parts,
                                            std::span<const uint32_t> candidates, size_t k, double at_least) {
  std::vector<FoundNeighbour> best;
  for (uint32_t row : candidates) {
    if (row == query) continue;
    const FoundNeighbour at{row, static_cast<float>(cosine(table, query, row, parts))};
    if (at.similarity >= static_cast<float>(at_least)) offer(best, k, at);
  }
  std::sort(best.begin(), best.end(), better);
  return best;
}

}  // namespace mso
