#include "io/sample_media.h"

namespace mso {

MediumBounds MediaDecoder::bounds_of(const ShardSample& sample, ModalityBit kind, uint64_t files) const {
  if (!bounds) return {most_tokens * static_cast<int64_t>(files), most_bytes * files};
  MediumBounds all;
  auto add = [&](const MediaFacts* facts) {
    const MediumBounds one = bounds(facts);
    all.tokens += one.tokens;
    all.bytes += one.bytes;
    --files;
  };
  if (kind == kHasImage && sample.picture_width > 0) {  // of picture(), which has no facts of its own
    MediaFacts facts;
    facts.width = sample.picture_width;
    facts.height = sample.picture_height;
    add(&facts);
  }
  for (const MediaFacts& facts : sample.media)
    if (files > 0 && facts.kind == kind) add(&facts);
  while (files > 0) add(nullptr);
  return all;
}

MediaDecoder media_decoder_of(const PictureDecoder& pictures, int64_t token) {
  MediaDecoder decoder;
  decoder.token = token;
  decoder.most_tokens = pictures.tokens;
  decoder.most_bytes = sizeof(float);
  for (int64_t side : pictures.shape) decoder.most_bytes *= static_cast<uint64_t>(side);
  decoder.same_tokens = true;
  std::vector<int64_t> shape{1};
  shape.insert(shape.end(), pictures.shape.begin(), pictures.shape.end());
  decoder.decode = [pictures, shape](std::span<const std::byte> file, const std::string&, BufferPool* pool) {
    HostTensor pixels = pool ? pool->tensor(DType::kF32, shape) : HostTensor::make(DType::kF32, shape);
    pictures.decode(file, pixels.data<float>());
    return one_tensor(pictures.media_name, std::move(pixels), pictures.tokens);
  };
  return decoder;
}

}  // namespace mso
