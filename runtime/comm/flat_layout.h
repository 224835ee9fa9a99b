// Where each parameter lies in the flat buffers of weights, gradients and optimizer state, and how these are cut
// into buckets and shards. Plain data: part of the plan, stored with every snapshot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mso {

// A named tensor inside a flat buffer. Offsets are in elements and multiples of 16 (64 bytes of float32).
struct FlatTensor {
  std::string name;            // logical name: stage-independent Hugging Face (hub) spelling
  std::string stage = {};      // "vision_encoder", "projector", "llm_decoder"…
  std::vector<int64_t> shape = {};
  size_t offset = 0;           // first element in the flat buffer
  size_t count = 0;            // product of shape
};

struct FlatLayout {
  std::vector<FlatTensor> tensors;  // ascending offsets, in the order of the forward pass
  size_t size = 0;                  // elements of the flat buffer, padding included
};

// Lays out tensors one after the other, each at the next multiple of 16 elements.
FlatLayout make_flat_layout(std::vector<FlatTensor> tensors);

// A contiguous range of whole tensors whose gradients are reduced together; part r of it
// (parts[r] … parts[r+1], absolute offsets) belongs to rank r of the data parallel group (ZeRO-1).
struct Bucket {
  size_t first_tensor = 0, last_tensor = 0;  // [first, last)
  size_t begin = 0, end = 0;                 // elements of the flat buffer
  std::vector<size_t> parts;                 // ranks + 1 offsets; boundaries are multiples of 16; parts may be empty
};

// Buckets of about `bucket_elements` (at least one tensor each), in ascending order.
std::vector<Bucket> plan_buckets(const FlatLayout& layout, size_t bucket_elements, int ranks);

// A piece of the flat buffer owned by a rank, and where it lies in that rank's contiguous shard.
struct ShardPiece {
  size_t bucket = 0;
  size_t flat_offset = 0, shard_offset = 0, count = 0;
};
struct Shard {
  std::vector<ShardPiece> pieces;  // one per bucket with a non-empty part
  size_t size = 0;                 // elements of the shard
};
Shard make_shard(const std::vector<Bucket>& buckets, int rank);

// A run of elements of one tensor inside a shard: what a snapshot's table lists. Padding is in no slice.
struct TensorSlice {
  std::string name;
  std::vector<int64_t> shape;        // of the whole tensor
  uint64_t begin = 0, end = 0;       // elements of the tensor, row-major, [begin, end)
  uint64_t offset = 0;               // first element in the shard's flat dataset
};
std::vector<TensorSlice> slices_of_shard(const FlatLayout& layout, const Shard& shard);

// How many elements of the flat buffer, or of a shard of it, belong to each stage; padding counts with the tensor before it.
std::map<std::string, uint64_t> elements_by_stage(const FlatLayout& layout);
std::map<std::string, uint64_t> elements_by_stage(const FlatLayout& layout, const Shard& shard);

}  // namespace mso
