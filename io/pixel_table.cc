#include "io/pixel_table.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/config_keys.h"

namespace mso {
namespace {

using Values = std::array<std::array<float, 256>, 3>;

// One look-up a value: vectors of them (gathers) are no faster on processors guarded against their leaks.
void planes(const Values& values, const PixelBlock& from, float* out, size_t row, size_t plane) {
  const float* red_values = values[0].data();
  const float* green_values = values[1].data();
  const float* blue_values = values[2].data();
  const size_t width = static_cast<size_t>(from.width);
  for (int y = 0; y < from.height; ++y) {
    const uint8_t* __restrict p = from.rgb + from.stride * y;
    float* __restrict red = out + row * y;
    float* __restrict green = red + plane;
    float* __restrict blue = green + plane;
    for (size_t x = 0; x < width; ++x) {
      red[x] = red_values[p[3 * x]];
      green[x] = green_values[p[3 * x + 1]];
      blue[x] = blue_values[p[3 * x + 2]];
    }
  }
}

}  // namespace

void read_pixel_settings(const ConfigKeys& keys, PixelSettings* settings) {
  keys.read("do_rescale", &settings->do_rescale);
  keys.read("rescale_factor", &settings->rescale_factor);
  keys.read("do_normalize", &settings->do_normalize);
  keys.read("image_mean", &settings->image_mean);
  keys.read("image_std", &settings->image_std);
  for (const double v : settings->image_std)
    if (v == 0) keys.refuse("image_std must not be 0");
}

void write_pixel_settings(const PixelSettings& settings, nlohmann::ordered_json* json) {
  (*json)["do_normalize"] = settings.do_normalize;
  (*json)["do_rescale"] = settings.do_rescale;
  (*json)["image_mean"] = settings.image_mean;
  (*json)["image_std"] = settings.image_std;
  (*json)["rescale_factor"] = settings.rescale_factor;
}

void read_resample(const ConfigKeys& keys, Resample* resample) {
  int number = static_cast<int>(*resample);
  keys.read("resample", 0, 5, &number);
  *resample = static_cast<Resample>(number);
}

PixelTable::PixelTable(const PixelSettings& settings, ImageBackend backend) {
  const bool fused = backend == ImageBackend::kTorchvision && settings.do_rescale && settings.do_normalize;
  for (size_t c = 0; c < 3; ++c) {
    float mean = static_cast<float>(settings.image_mean[c]);
    float deviation = static_cast<float>(settings.image_std[c]);
    if (fused) {
      const float steps = static_cast<float>(1.0 / settings.rescale_factor);
      mean *= steps;
      deviation *= steps;
    }
    for (int v = 0; v < 256; ++v) {
      float x = static_cast<float>(v);
      if (settings.do_rescale && !fused)
        x = backend == ImageBackend::kPil ? static_cast<float>(v * settings.rescale_factor)
                                          : x * static_cast<float>(settings.rescale_factor);
      if (settings.do_normalize) x = (x - mean) / deviation;
      values_[c][v] = x;
    }
  }
}

void PixelTable::to_planes(const PixelBlock& from, float* out, size_t row, size_t plane) const {
  constexpr int kChunk = 256, kSmall = 32;
  if (from.width < kSmall) return planes(values_, from, out, row, plane);
  // Large results do not stay in the cache: single values written there are waited for, whole lines are not.
  float chunk[3 * kChunk];
  for (int y = 0; y < from.height; ++y)
    for (int x = 0; x < from.width; x += kChunk) {
      const int n = std::min(kChunk, from.width - x);
      planes(values_, {from.rgb + from.stride * y + size_t{3} * x, 0, n, 1}, chunk, 0, kChunk);
      for (int c = 0; c < 3; ++c)
        std::memcpy(out + plane * c + row * y + x, chunk + kChunk * c, n * sizeof(float));
    }
}

void PixelTable::fill_planes(uint8_t value, int width, int height, float* out, size_t row,
                             size_t plane) const {
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < height; ++y) std::fill_n(out + plane * c + row * y, width, values_[c][value]);
}

void PixelTable::to_pixels(const uint8_t* rgb, size_t pixels, float* out) const {
  for (size_t i = 0; i < pixels; ++i) {
    out[3 * i] = values_[0][rgb[3 * i]];
    out[3 * i + 1] = values_[1][rgb[3 * i + 1]];
    out[3 * i + 2] = values_[2][rgb[3 * i + 2]];
  }
}

}  // namespace mso
