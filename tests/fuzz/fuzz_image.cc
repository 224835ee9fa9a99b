// libFuzzer: any bytes give an Error or a picture of the size that its header says, resized to a small output.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "io/image.h"
#include "io/image_processor.h"

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
  } catch (const mso::Error& error) {
    if (error.exit_code() != mso::ExitCode::kBadData) std::abort();
  }
  return 0;
}
