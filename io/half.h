// IEEE 754 binary16 ("half", float16) to and from float32, by bits.
#pragma once

#include <bit>
#include <cstdint>

namespace mso {

// Nearest, ties to even; beyond 65504 becomes infinity. No NaN is expected.
inline uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half: adding 0.5 leaves the half's bits at the bottom of the mantissa, rounded.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude + 0xc8000fffu + odd) >> 13));
}

inline float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // 2^112 moves the exponent's bias from 15 to 127, for subnormal halves too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t infinite = magnitude >= 0x7c00u ? 0x7f800000u : 0;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled) | infinite);
}

}  // namespace mso
