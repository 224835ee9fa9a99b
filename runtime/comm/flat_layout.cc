#include "comm/flat_layout.h"

#include <algorithm>

namespace mso {

namespace {
constexpr size_t kAlignment = 16;  // elements: 64 bytes of float32
size_t align_up(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}
}  // namespace

FlatLayout make_flat_layout(std::vector<FlatTensor> tensors) {
  FlatLayout layout;
  for (FlatTensor& tensor : tensors) {
    tensor.count = 1;
    for (int64_t dim : tensor.shape) tensor.count *= static_cast<size_t>(dim);
    tensor.offset = layout.size;
    layout.size += align_up(tensor.count);
  }
  layout.tensors = std::move(tensors);
  return layout;
}

std::vector<Bucket> plan_buckets(const FlatLayout& layout, size_t bucket_elements, int ranks) {
  std::vector<Bucket> buckets;
  const size_t n = layout.tensors.size();
  for (size_t first = 0; first < n;) {
    Bucket bucket;
    bucket.first_tensor = first;
    bucket.begin = layout.tensors[first].offset;
    size_t last = first;
    do {
      ++last;
      bucket.end = last < n ? layout.tensors[last].offset : layout.size;
    } while (last < n && bucket.end - bucket.begin < bucket_elements);
    bucket.last_tensor = last;
    // Equal parts in units of the alignment, the remainder to the first ranks.
    const size_t units = (bucket.end - bucket.begin) / kAlignment;
    bucket.parts.resize(ranks + 1);
    for (int r = 0; r <= ranks; ++r) {
      size_t before = units / ranks * r + std::min<size_t>(r, units % ranks);
      bucket.parts[r] = bucket.begin + before * kAlignment;
    }
    buckets.push_back(std::move(bucket));
    first = last;
  }
  return buckets;
}

Shard make_shard(const std::vector<Bucket>& buckets, int rank) {
  Shard shard;
  for (size_t b = 0; b < buckets.size(); ++b) {
    size_t begin = buckets[b].parts[rank], end = buckets[b].parts[rank + 1];
    if (begin == end) continue;
    shard.pieces.push_back({b, begin, shard.size, end - begin});
    shard.size += end - begin;
  }
  return shard;
}

std::vector<TensorSlice> slices_of_shard(const FlatLayout& layout, const Shard& shard) {
  std::vector<TensorSlice> slices;
  for (const ShardPiece& piece : shard.pieces) {
    auto it = std::upper_bound(layout.tensors.begin(), layout.tensors.end(), piece.flat_offset,
                               [](size_t offset, const FlatTensor& t) { return offset < t.offset; });
    if (it != layout.tensors.begin()) --it;
    for (; it != layout.tensors.end() && it->offset < piece.flat_offset + piece.count; ++it) {
      size_t begin = std::max(it->offset, piece.flat_offset);
      size_t end = std::min(it->offset + it->count, piece.flat_offset + piece.count);
      if (begin >= end) continue;  // only padding of this tensor is inside
      slices.push_back({it->name, it->shape, begin - it->offset, end - it->offset,
                        piece.shard_offset + (begin - piece.flat_offset)});
    }
  }
  return slices;
}

std::map<std::string, uint64_t> elements_by_stage(const FlatLayout& layout, const Shard& shard) {
  std::map<std::string, uint64_t> elements;
  for (const ShardPiece& piece : shard.pieces) {
    const size_t piece_end = piece.flat_offset + piece.count;
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      const size_t tensor_end = i + 1 < layout.tensors.size() ? layout.tensors[i + 1].offset : layout.size;
      const size_t begin = std::max(layout.tensors[i].offset, piece.flat_offset), end = std::min(tensor_end, piece_end);
      if (begin < end) elements[layout.tensors[i].stage] += end - begin;
    }
  }
  return elements;
}

std::map<std::string, uint64_t> elements_by_stage(const FlatLayout& layout) {
  Shard all;
  all.pieces.push_back({0, 0, 0, layout.size});
  all.size = layout.size;
  return elements_by_stage(layout, all);
}

}  // namespace mso
