// FFmpeg frames of any pixel format as 8-bit RGB, with alpha composited on white.
#pragma once

#include "io/ffmpeg.h"
#include "io/image.h"

namespace mso {

// A colour that counts as transparent (PNG tRNS of gray pictures), compared with 8-bit gray samples; -1:
// none.
struct ColourKey {
  int gray = -1;
};

// False when the pixel format is none that can be converted.
bool frame_to_rgb(const AVFrame& frame, ColourKey key, Image* out);

// colour and alpha 0…255, straight alpha, on white, rounded to nearest.
inline uint8_t on_white(unsigned colour, unsigned alpha) {
  const unsigned v = colour * alpha + 255 * (255 - alpha) + 127;
  return static_cast<uint8_t>(v / 255);
}

}  // namespace mso
