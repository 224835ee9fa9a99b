// Resampling of 8-bit RGB, bit for bit what Pillow's Image.resize gives (libImaging/Resample.c, Geometry.c).
#pragma once

#include <cstdint>

#include "io/image.h"

namespace mso {

// Numbered as PIL.Image.Resampling, which Hugging Face's preprocessor_config.json stores.
enum class Resample { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

// A rectangle of the resized picture, in its pixels.
struct Window {
  int x = 0, y = 0, width = 0, height = 0;
};

// `image` resized to width × height. Filters other than nearest widen by the scale when shrinking, as in
// Pillow. Rows are filtered before columns, with rounding to bytes between; the other way round where the
// height shrinks by more than twice the pixels that the width does: Pillow's rule since 13.0 (before, rows
// always came first, which differs by some 1/255 in pictures where the new rule holds).
Image resize(const Image& image, int width, int height, Resample filter);

// Only the pixels of `window` of the picture resized to width × height, at about that part of the cost. The
// window must lie inside. `out`: window.height rows of window.width × 3 bytes without gaps. Keeps scratch
// memory per thread.
void resize_window(const Image& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out);

// The same with one of all_resize_kernels() (io/resize_kernels.h), for tests.
struct ResizeKernels;
void resize_window(const Image& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out, const ResizeKernels& kernels);

}  // namespace mso
