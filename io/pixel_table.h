// Rescaling and normalising of 8-bit pixels, by a table of the 256 values of each channel, straight into the
// order a model wants them in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "io/resize.h"

namespace mso {

class ConfigKeys;

// Names and defaults as in transformers' image processors (CLIP's mean and deviation).
struct PixelSettings {
  bool do_rescale = true;
  double rescale_factor = 1.0 / 255.0;
  bool do_normalize = true;
  std::array<double, 3> image_mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> image_std = {0.26862954, 0.26130258, 0.27577711};

  bool operator==(const PixelSettings&) const = default;
};

// Reads and writes the five keys. Error (kBadUsage) for an image_std of 0.
void read_pixel_settings(const ConfigKeys& keys, PixelSettings* settings);
void write_pixel_settings(const PixelSettings& settings, nlohmann::ordered_json* json);
// Key "resample", 0 to 5.
void read_resample(const ConfigKeys& keys, Resample* resample);

// A rectangle of RGB pixels within a picture: rows are `stride` bytes apart.
struct PixelBlock {
  const uint8_t* rgb = nullptr;
  size_t stride = 0;
  int width = 0, height = 0;
};

// Bit-identical with transformers: kPil         ((float)(v · rescale_factor) − mean) / std kTorchvision (v −
// mean · (1 / rescale_factor)) / (std · (1 / rescale_factor)), and v · rescale_factor without normalising;
// all in float.
class PixelTable {
 public:
  PixelTable(const PixelSettings& settings, ImageBackend backend);

  float at(int channel, uint8_t value) const { return values_[channel][value]; }

  // out[channel * plane + y * row + x].
  void to_planes(const PixelBlock& from, float* out, size_t row, size_t plane) const;
  // Fills a rectangle of the same order with one byte.
  void fill_planes(uint8_t value, int width, int height, float* out, size_t row, size_t plane) const;
  // `pixels` pixels without separating channels: out[3 * i + channel].
  void to_pixels(const uint8_t* rgb, size_t pixels, float* out) const;

 private:
  std::array<std::array<float, 256>, 3> values_;
};

}  // namespace mso
