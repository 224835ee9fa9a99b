// What the assembler needs of a model family: for each kind of media, what one file of a sample becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/buffer_pool.h"
#include "io/processor.h"
#include "io/shard_index.h"

namespace mso {

// Positions and bytes of one file, at most where the index knows its size, else an estimate.
struct MediumBounds {
  int64_t tokens = 0;
  uint64_t bytes = 0;
};

// One kind of media. Made by io/media_decoder.h and io/picture_decoder.h for LLaVA, by io/processor_decoder.h of any
// family's processor.
struct MediaDecoder {
  int64_t token = -1;        // id that fills its features' positions, where a run names no token; -1: all runs do
  int64_t most_tokens = 0;   // of one file, for costs and memory
  uint64_t most_bytes = 0;   // of its tensors
  bool same_tokens = false;  // every file fills `most_tokens` positions with `token`
  // Closer than the two above; may be none. `facts`: what the index knows of the file; null: nothing.
  std::function<MediumBounds(const MediaFacts* facts)> bounds;
  // Tensors are joined along their first dimension, under their names, in the order of the files in the sample. Called
  // from several threads at once; throws Error for a bad file. `name` is for messages.
  std::function<ProcessedMedia(std::span<const std::byte> file, const std::string& name, BufferPool* pool)> decode;

  // Of `files` files of the sample that are of this kind.
  MediumBounds bounds_of(const ShardSample& sample, ModalityBit kind, uint64_t files) const;
};

// One tensor, and `tokens` positions filled with MediaDecoder::token.
inline ProcessedMedia one_tensor(const std::string& name, HostTensor tensor, int64_t tokens) {
  ProcessedMedia media;
  media.tensors.emplace(name, std::move(tensor));
  media.tokens.push_back({"", tokens, true});
  return media;
}

// Pictures that all become tensors of one shape: LLaVA's processor, and stubs in tests.
struct PictureDecoder {
  std::vector<int64_t> shape;  // of one picture in the model's input: {3, height, width}
  int64_t tokens = 0;          // positions of one picture: (side/patch)² for strategy "default", one more for "full"
  std::string media_name = "pixel_values";  // in MicroBatch::media
  // Encoded file → float32 pixels of `shape`; called from several threads at once; throws Error for a bad picture.
  std::function<void(std::span<const std::byte> file, float* pixels)> decode;
};
MediaDecoder media_decoder_of(const PictureDecoder& pictures, int64_t token);

}  // namespace mso
