// JPEG through libjpeg-turbo: decoding with the stored orientation, at full or reduced scale, and encoding.
#pragma once

#include "io/image.h"
#include "io/image_header.h"

namespace mso {

// The numerator M of the scale M/8 (8, 4, 2 or 1; the scales libjpeg-turbo has fast code for) at which a
// picture of width × height, decoded to ceil(side · M/8), is still at least target_width × target_height; 8
// when a target is 0.
int jpeg_scale(int width, int height, int target_width, int target_height);

// Pixels as stored (EXIF orientation not applied), scaled by `scale`/8. Error (kBadData) for damage of any
// kind.
void decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                 int scale, Image* out);

}  // namespace mso
