// Pictures: what a file is (probe_image), its pixels (decode_image), and JPEG writing for the packer.
// JPEG goes through libjpeg-turbo, PNG, WebP, GIF (first frame), BMP and TIFF through FFmpeg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mso {

// 8-bit sRGB as stored (no colour management), rows top to bottom without gaps: rgb[(y * width + x) * 3 +
// channel].
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;
};

// What the header says. Width and height are those of the decoded picture, that is with EXIF orientation
// applied.
struct ImageInfo {
  int width = 0, height = 0;
  std::string format;  // "jpeg", "png", "webp", "gif", "bmp" or "tiff", from the content, never from the name
};

struct DecodeOptions {
  // The size the picture will be resized to (pixels, EXIF orientation applied); 0: unknown, decode at full
  // size. A JPEG much larger than this is decoded at reduced scale (fewer DCT coefficients), never below this
  // size, so that the later resize is still a downscale. Other formats ignore it.
  int target_width = 0, target_height = 0;
  // What of the resized picture is used (a crop), in its pixels, one more or less for rounding; no width: all. Pixels that
  // no filter needs for it may be left undefined: libjpeg-turbo need not compute them. Damage there is noticed as well.
  int used_x = 0, used_y = 0, used_width = 0, used_height = 0;
  // True: always at full size, bit-identical with libjpeg-turbo's defaults (what Pillow shows).
  bool exact = false;
  // Larger pictures are refused before memory is taken for them (hostile headers).
  int64_t max_pixels = int64_t{1} << 28;
};

// Reads the header alone (some microseconds; no pixel is decoded). `bytes`: the whole file; `name` is for
// messages. Error (kBadData) naming the file when it is empty, of no known picture format, or its header is
// damaged.
ImageInfo probe_image(std::span<const std::byte> bytes, const std::string& name);

// The picture as RGB.
// - EXIF orientation 1–8 is applied, as PIL.ImageOps.exif_transpose does. (Image.open alone and Hugging
// Face's image
//   processors do not; training pipelines do, and pictures then stand as people saw them.)
// - CMYK and YCCK JPEGs are taken as Adobe writes them (inverted), as Pillow's convert("RGB") does.
// - Transparency (alpha channel, palette or colour key) is composited on white with straight alpha, rounded
// to
//   nearest; 16-bit samples are scaled to 8 bits by 255/65535, rounded to nearest (Pillow clips 16-bit gray).
// - A picture that is not all there is an Error, never a half picture: premature end, missing IEND, wrong
// checksum,
//   corrupt entropy-coded data.
// Error has ExitCode::kBadData and names `name`. Thread-safe, keeps no state.
Image decode_image(std::span<const std::byte> bytes, const std::string& name,
                   const DecodeOptions& options = {});

// The same into an existing Image, whose memory is reused (for decoder threads).
void decode_image(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options,
                  Image* out);

// Baseline JPEG, chroma 4:2:0, optimised Huffman tables; `quality` 1–100 in libjpeg's scale. The same picture
// gives the same bytes with the same libjpeg-turbo. Error for an empty picture or a side above 65500.
std::vector<std::byte> encode_jpeg(const Image& image, int quality);

}  // namespace mso
