// A decoded video frame as upright RGB.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/ffmpeg.h"

extern "C" {
#include <libswscale/swscale.h>
}

namespace mso {

// How the stored picture must be turned and mirrored to stand upright: where output pixel (x, y) comes from.
// Without swap: column x, row y of the stored picture; with swap: column y, row x; each counted from the far
// end where flipped.
struct Orientation {
  bool swap_sides = false, flip_columns = false, flip_rows = false;

  bool upright() const { return !swap_sides && !flip_columns && !flip_rows; }
  bool operator==(const Orientation&) const = default;
};

// From a container's display matrix (nine 32-bit fixed-point numbers, as in MP4's tkhd). Angles that are no
// multiple of 90° are left as stored.
Orientation orientation_of(const int32_t matrix[9]);

// Rules, those of `ffmpeg -pix_fmt rgb24`, to which the pixels are equal bit for bit where the FFmpeg is the
// same: swscale with its default bicubic filter and dithering; the YCbCr matrix is the stream's (BT.601 where
// it does not say, whatever the size), studio or full range as the stream says (studio where it does not);
// transfer curve and primaries are left alone (no HDR tone mapping); alpha is dropped; pixels that are not
// square stay so. Turning comes after the conversion. Keeps swscale's context from frame to frame; one thread
// at a time.
class FrameConverter {
 public:
  FrameConverter(int width, int height, Orientation orientation)
      : width_(width), height_(height), orientation_(orientation) {}

  // `frame` is scaled where its size is not `width` × `height` (before turning). `rgb`: upright, without
  // gaps, width × height × 3 bytes. False for a pixel format swscale cannot read.
  bool convert(const AVFrame& frame, uint8_t* rgb);

 private:
  struct Deleter {
    void operator()(SwsContext* p) const { sws_freeContext(p); }
  };
  bool prepare(const AVFrame& frame);

  int width_, height_;
  Orientation orientation_;
  std::unique_ptr<SwsContext, Deleter> scaler_;
  int in_width_ = 0, in_height_ = 0, in_format_ = -1, in_matrix_ = -1, in_range_ = -1;
  std::vector<uint8_t> rows_;  // swscale may write past a row's end: rows of its own
  int stride_ = 0;
};

}  // namespace mso
