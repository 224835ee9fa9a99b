// Still pictures through FFmpeg's decoders: PNG, WebP, GIF (first frame), BMP, TIFF.
#pragma once

#include "io/image.h"
#include "io/image_header.h"

namespace mso {

// Pixels as stored (orientation not applied), alpha composited on white. Error (kBadData) for damage of any
// kind.
void decode_with_ffmpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                        Image* out);

}  // namespace mso
