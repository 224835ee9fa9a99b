// Resampling of 8-bit RGB, bit for bit what Pillow's Image.resize (libImaging/Resample.c, Geometry.c) or
// torchvision's resize of uint8 tensors on a CPU (ATen's UpSampleKernel) gives.
#pragma once

#include <cstdint>

#include "io/image.h"

namespace mso {

// Numbered as PIL.Image.Resampling, which Hugging Face's preprocessor_config.json stores.
enum class Resample { kNearest = 0, kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

// Whose results are meant where the two image backends of Hugging Face transformers differ.
enum class ImageBackend { kPil, kTorchvision };

// A rectangle of the resized picture, in its pixels.
struct Window {
  int x = 0, y = 0, width = 0, height = 0;
};

// Pixels as in Image, kept elsewhere (a frame of a VideoClip).
struct ImageView {
  int width = 0, height = 0;
  const uint8_t* rgb = nullptr;

  ImageView(const Image& image) : width(image.width), height(image.height), rgb(image.rgb.data()) {}
  ImageView(int w, int h, const uint8_t* pixels) : width(w), height(h), rgb(pixels) {}
};

// `image` resized to width × height. Filters other than nearest widen by the scale when shrinking, as in
// Pillow. Rows are filtered before columns, with rounding to bytes between; the other way round where the
// height shrinks by more than twice the pixels that the width does: Pillow's rule since 13.0 (before, rows
// always came first, which differs by some 1/255 in pictures where the new rule holds).
Image resize(const ImageView& image, int width, int height, Resample filter,
             ImageBackend backend = ImageBackend::kPil);

// Only the pixels of `window` of the picture resized to width × height, at about that part of the cost. The
// window must lie inside. `out`: window.height rows of window.width × 3 bytes without gaps. Keeps scratch
// memory per thread.
// kTorchvision: antialiased, rows always before columns, weights of 16 bits with as many after the point as
// the largest of them leaves room for; kNearest is its "nearest-exact". kBox and kHamming it does not have:
// Error (kBadUsage). Larger results than 2^24 pixels a side are refused there (kBadData): every weight
// counts.
void resize_window(const ImageView& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out, ImageBackend backend = ImageBackend::kPil);

// The same with one of all_resize_kernels() (io/resize_kernels.h), for tests.
struct ResizeKernels;
void resize_window(const ImageView& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out, ImageBackend backend, const ResizeKernels& kernels);

}  // namespace mso
