#include "io/transpose_bytes.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define MSO_TRANSPOSE_X86 1
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own AVX-512 header (_mm512_undefined_epi32).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace mso {
namespace {

#ifdef MSO_TRANSPOSE_X86
#define MSO_INLINE inline __attribute__((always_inline))
#define MSO_AVX512 __attribute__((target("avx512f,avx512bw")))

// Four rounds of interleaving row i with row i + 8 transpose 16 × 16 bytes. Unrolled, so that rows stay in registers.
MSO_INLINE void interleave(const __m128i from[16], __m128i to[16]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + 8]);
    to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + 8]);
  }
}
// The same for four blocks at once, one in each part of 128 bits.
MSO_INLINE MSO_AVX512 void interleave(const __m512i from[16], __m512i to[16]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    to[2 * i] = _mm512_unpacklo_epi8(from[i], from[i + 8]);
    to[2 * i + 1] = _mm512_unpackhi_epi8(from[i], from[i + 8]);
  }
}

MSO_INLINE void transpose_block(const __m128i rows[16], uint8_t* to) {
  __m128i a[16], b[16];
  interleave(rows, a);
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), b[i]);
}

// Blocks of 64 columns; returns how many columns are done.
MSO_AVX512 size_t transpose_in_avx512(const uint8_t* const rows[kTransposedRows], size_t columns, uint8_t* to) {
  size_t x = 0;
  for (; x + 64 <= columns; x += 64) {
    __m512i a[16], b[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows[i] + x);
    interleave(a, b);
    interleave(b, a);
    interleave(a, b);
    interleave(b, a);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i* out = reinterpret_cast<__m128i*>(to + (x + i) * 16);
      _mm_storeu_si128(out, _mm512_castsi512_si128(a[i]));
      _mm_storeu_si128(out + 16, _mm512_extracti32x4_epi32(a[i], 1));
      _mm_storeu_si128(out + 32, _mm512_extracti32x4_epi32(a[i], 2));
      _mm_storeu_si128(out + 48, _mm512_extracti32x4_epi32(a[i], 3));
    }
  }
  return x;
}
const bool kAvx512 = __builtin_cpu_supports("avx512bw");
#endif

}  // namespace

void transpose_in(const uint8_t* const rows[kTransposedRows], size_t columns, uint8_t* to) {
  size_t x = 0;
#ifdef MSO_TRANSPOSE_X86
  if (kAvx512) x = transpose_in_avx512(rows, columns, to);
  for (; x + 16 <= columns; x += 16) {
    __m128i block[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i] + x));
    transpose_block(block, to + x * 16);
  }
#endif
  for (; x < columns; ++x)
    for (int i = 0; i < kTransposedRows; ++i) to[x * kTransposedRows + i] = rows[i][x];
}

void transpose_out(const uint8_t* from, size_t columns, int rows, uint8_t* to, size_t stride) {
  size_t x = 0;
#ifdef MSO_TRANSPOSE_X86
  for (; x + 16 <= columns; x += 16) {
    __m128i block[16];
    alignas(16) uint8_t turned[256];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (x + i) * 16));
    transpose_block(block, turned);
    for (int i = 0; i < rows; ++i) std::memcpy(to + stride * i + x, turned + 16 * i, 16);
  }
#endif
  for (; x < columns; ++x)
    for (int i = 0; i < rows; ++i) to[stride * i + x] = from[x * kTransposedRows + i];
}

}  // namespace mso
