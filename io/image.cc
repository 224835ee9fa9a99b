#include "io/image.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "io/ffmpeg_image.h"
#include "io/image_header.h"
#include "io/jpeg.h"

namespace mso {
namespace {

struct Rgb {
  uint8_t r, g, b;
};

// EXIF orientation: where row 0 and column 0 of the stored picture are seen. 2: mirrored, 3: turned by 180°,
// 4: upside down, 5: transposed, 6: to be turned clockwise, 7: transposed over the other diagonal,
// 8: to be turned counter-clockwise.
void apply_orientation(int orientation, Image* image) {
  if (orientation <= 1 || orientation > 8) return;
  const int w = image->width, h = image->height;
  const bool swaps = orientation >= 5;
  const int out_w = swaps ? h : w, out_h = swaps ? w : h;
  std::vector<uint8_t> turned(image->rgb.size());
  const Rgb* from = reinterpret_cast<const Rgb*>(image->rgb.data());
  Rgb* to = reinterpret_cast<Rgb*>(turned.data());
  // Start and steps through the stored picture for one output pixel to the right and one down.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const ptrdiff_t step_x = from_right ? -1 : 1, step_y = from_bottom ? -ptrdiff_t{w} : w;
  const ptrdiff_t right = swaps ? step_y : step_x, down = swaps ? step_x : step_y;
  const ptrdiff_t start = (from_right ? w - 1 : 0) + (from_bottom ? ptrdiff_t{w} * (h - 1) : 0);
  for (int y = 0; y < out_h; ++y) {
    const Rgb* p = from + start + down * y;
    for (int x = 0; x < out_w; ++x, p += right) *to++ = *p;
  }
  image->rgb = std::move(turned);
  image->width = out_w;
  image->height = out_h;
}

// Of `size` pixels decoded and resized to `target`, those that `length` from `begin` on are made of, whatever the filter
// (the widest, Lanczos, reaches three pixels of the coarser of both sides), two pixels of the resized picture more for
// sizes that were rounded otherwise.
PixelRange needed_pixels(int size, int target, int begin, int length) {
  const double step = static_cast<double>(size) / target, reach = 3 * std::max(step, 1.0) + 2 * step + 2;
  return {static_cast<int>(std::max(0.0, std::floor(begin * step - reach))),
          static_cast<int>(std::min<double>(size, std::ceil((begin + length) * step + reach)))};
}

// Of a JPEG that is not turned.
JpegPart needed_part(const ImageHeader& header, const DecodeOptions& options, int scale) {
  const int width = jpeg_scaled(header.width, scale), height = jpeg_scaled(header.height, scale);
  if (options.used_width <= 0 || options.target_width <= 0 || header.orientation > 1) return {{0, width}, {0, height}};
  return {needed_pixels(width, options.target_width, options.used_x, options.used_width),
          needed_pixels(height, options.target_height, options.used_y, options.used_height)};
}

}  // namespace

ImageInfo probe_image(std::span<const std::byte> bytes, const std::string& name) {
  const ImageHeader header = read_image_header(bytes, name);
  ImageInfo info{header.width, header.height, format_name(header.format)};
  if (header.swaps_sides()) std::swap(info.width, info.height);
  return info;
}

void decode_image(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options,
                  Image* out) {
  const ImageHeader header = read_image_header(bytes, name);
  if (int64_t{header.width} * header.height > options.max_pixels)
    throw Error("picture is too large (" + std::to_string(header.width) + "×" +
                    std::to_string(header.height) + " pixels)",
                name, "at most " + std::to_string(options.max_pixels) + " pixels; scale it down or delete it",
                ExitCode::kBadData);
  if (header.format == ImageFormat::kJpeg) {
    int scale = 8;
    if (!options.exact)
      scale = header.swaps_sides()
                  ? jpeg_scale(header.width, header.height, options.target_height, options.target_width)
                  : jpeg_scale(header.width, header.height, options.target_width, options.target_height);
    decode_jpeg(bytes, header, name, scale, needed_part(header, options, scale), out);
  } else {
    check_image_structure(bytes, header, name);
    decode_with_ffmpeg(bytes, header, name, out);
  }
  apply_orientation(header.orientation, out);
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options) {
  Image image;
  decode_image(bytes, name, options, &image);
  return image;
}

}  // namespace mso
