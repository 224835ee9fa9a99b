// Headers of picture files: format by content, stored size, EXIF orientation, and whether the file is all
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mso {

enum class ImageFormat { kJpeg, kPng, kWebp, kGif, kBmp, kTiff };

struct ImageHeader {
  ImageFormat format = ImageFormat::kJpeg;
  int width = 0, height = 0;  // as stored, before orientation
  int orientation = 1;        // EXIF 1–8; anything else in the file reads as 1
  bool swaps_sides() const { return orientation >= 5; }
};

const char* format_name(ImageFormat format);

// Error (kBadData) naming `name` when the bytes are no picture or the header is damaged.
ImageHeader read_image_header(std::span<const std::byte> bytes, const std::string& name);

// Walks the file's own structure (chunks, blocks, lengths, PNG checksums) and throws Error (kBadData) where
// it ends early or a checksum is wrong: decoders would show half a picture there. JPEG is left to libjpeg,
// which tells.
void check_image_structure(std::span<const std::byte> bytes, const ImageHeader& header,
                           const std::string& name);

}  // namespace mso
