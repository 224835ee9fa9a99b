// JPEG through libjpeg-turbo: decoding with the stored orientation, at full or reduced scale, and encoding.
#pragma once

#include "io/image.h"
#include "io/image_header.h"

namespace mso {

// The numerator M of the scale M/8 (8, 4, 2 or 1; the scales libjpeg-turbo has fast code for) at which a
// picture of width × height, decoded to ceil(side · M/8), is still at least target_width × target_height; 8
// when a target is 0.
int jpeg_scale(int width, int height, int target_width, int target_height);

// Pixels of a side of `size` at scale M/8.
constexpr int jpeg_scaled(int size, int scale) { return static_cast<int>((int64_t{size} * scale + 7) / 8); }

struct PixelRange {
  int begin = 0, end = 0;
};
struct JpegPart {
  PixelRange columns, rows;  // of the scaled picture
};

// Pixels as stored (EXIF orientation not applied), scaled by `scale`/8. *out has the size of the whole picture; pixels
// outside `part` are undefined, those inside the same as if all were decoded. Error (kBadData) for damage of any
// kind, wherever it is. `libjpeg_alone`: without io/jpeg_huffman.h, to compare with; nothing else changes.
void decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                 int scale, const JpegPart& part, Image* out, bool libjpeg_alone = false);

}  // namespace mso
