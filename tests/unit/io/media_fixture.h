// Reads tests/unit/io/fixtures/media (made by make_media_fixtures.py).
#pragma once

#include <cstdlib>
#include <span>
#include <string>

#include "base/file.h"
#include "io/media_clip.h"

namespace mso {

inline std::string media_fixture(const std::string& name) {
  const char* source = std::getenv("MSO_SRCDIR");
  if (!source) source = std::getenv("srcdir");
  return read_file(std::string(source ? source : ".") + "/tests/unit/io/fixtures/media/" + name);
}

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

// The number that a frame of a counted clip shows (64 × 48, eight columns), or −1 where it is none.
inline int64_t shown_number(const VideoClip& clip, int64_t frame) {
  const auto rgb = clip.frame(frame);
  int64_t number = 0;
  for (int bit = 0; bit < 8; ++bit) {
    int sum = 0;
    for (int y = 16; y < 32; ++y)
      for (int x = 8 * bit + 3; x < 8 * bit + 5; ++x) sum += rgb[(size_t(y) * clip.width + x) * 3 + 1];
    const int mean = sum / 32;
    if (mean > 80 && mean < 175) return -1;
    if (mean >= 175) number |= int64_t{1} << bit;
  }
  return number;
}

}  // namespace mso
