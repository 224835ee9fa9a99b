#include "io/picture_decoder.h"

#include <memory>

#include "io/image.h"

namespace mso {

PictureDecoder make_picture_decoder(const ImageProcessorConfig& config, int64_t tokens, bool exact_jpeg) {
  auto processor = std::make_shared<const ImageProcessor>(config);
  PictureDecoder decoder;
  decoder.shape = {3, processor->height(), processor->width()};
  decoder.tokens = tokens;
  decoder.decode = [processor, exact_jpeg](std::span<const std::byte> file, float* pixels) {
    thread_local Image image;  // its memory is used again for the next picture
    const ImageInfo info = probe_image(file, "picture");
    decode_image(file, "picture", processor->decode_options(info.width, info.height, exact_jpeg), &image);
    processor->process(image, pixels);
  };
  return decoder;
}

}  // namespace mso
