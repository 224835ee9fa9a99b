// libFuzzer: any bytes give an Error or a picture of the size that its header says, resized to a small output;
// JPEGs the same picture or refusal as from libjpeg alone.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "io/image.h"
#include "io/image_processor.h"
#include "io/jpeg.h"

namespace {

// What io/jpeg_huffman.h makes of the file is what libjpeg alone makes of it, refusal included.
void check_jpeg(std::span<const std::byte> bytes, int64_t max_pixels) {
  const mso::ImageHeader header = mso::read_image_header(bytes, "input");
  if (int64_t{header.width} * header.height > max_pixels) return;
  for (const int scale : {8, 1}) {
    const mso::JpegPart whole{{0, mso::jpeg_scaled(header.width, scale)}, {0, mso::jpeg_scaled(header.height, scale)}};
    mso::Image images[2];
    bool refused[2] = {};
    for (const bool alone : {false, true}) try {
        mso::decode_jpeg(bytes, header, "input", scale, whole, &images[alone], alone);
      } catch (const mso::Error&) {
        refused[alone] = true;
      }
    if (refused[0] != refused[1] || (!refused[0] && images[0].rgb != images[1].rgb)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const mso::ImageProcessor processor(mso::clip_image_processor(16));
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const mso::ImageInfo info = mso::probe_image(bytes, "input");
    mso::DecodeOptions options = processor.decode_options(info.width, info.height, size % 2 == 0);
    options.max_pixels = 1 << 18;
    const mso::Image image = mso::decode_image(bytes, "input", options);
    if (image.rgb.size() != size_t(image.width) * image.height * 3) std::abort();
    if (options.exact && (image.width != info.width || image.height != info.height)) std::abort();
    std::vector<float> out(processor.size());
    processor.process(image, out.data());
    if (info.format == "jpeg") check_jpeg(bytes, options.max_pixels);
  } catch (const mso::Error& error) {
    if (error.exit_code() != mso::ExitCode::kBadData) std::abort();
  }
  return 0;
}
