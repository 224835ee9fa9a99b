#include "io/resize_kernels.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define MSO_RESIZE_X86 1
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own AVX-512 header (_mm512_undefined_epi32).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace mso {
namespace {

constexpr int kLowBits = 15;

// What is added for rounding.
int half_of(const PairedWeights& weights) {
  return 1 << (weights.fraction_bits - 1);
}

// ---- any machine -----------------------------------------------------------------------
// Unsigned, so that wrapping is defined.
uint8_t rounded(uint32_t sum, int fraction_bits) {
  return static_cast<uint8_t>(std::clamp(static_cast<int32_t>(sum) >> fraction_bits, 0, 255));
}
uint32_t whole_weight(const PairedWeights& weights, size_t i, int which) {
  const uint32_t low = weights.low[i] >> 16 * which & 0xFFFF;
  if (!weights.wide) return static_cast<uint32_t>(static_cast<int16_t>(low));
  return (static_cast<uint32_t>(static_cast<int16_t>(weights.high[i] >> 16 * which)) << kLowBits) + low;
}

void horizontal_plain(const uint8_t* columns, int begin, const PairedWeights& weights, uint8_t* out) {
  constexpr int kBlock = 3 * kResizeLanes * 2;
  for (size_t x = 0; x < weights.first.size(); ++x) {
    uint32_t sums[3 * kResizeLanes];
    std::fill(std::begin(sums), std::end(sums), half_of(weights));
    const uint8_t* p = columns + size_t(weights.first[x] - begin) / 2 * kBlock;
    for (int t = 0; t < weights.used[x]; ++t, p += kBlock) {
      const size_t i = x * weights.pairs + t;
      const uint32_t w0 = whole_weight(weights, i, 0);
      const uint32_t w1 = whole_weight(weights, i, 1);
      for (int k = 0; k < 3 * kResizeLanes; ++k) sums[k] += w0 * p[2 * k] + w1 * p[2 * k + 1];
    }
    for (int k = 0; k < 3 * kResizeLanes; ++k) *out++ = rounded(sums[k], weights.fraction_bits);
  }
}

void vertical_plain(const uint8_t* from, size_t stride, const PairedWeights& weights, int y, size_t samples,
                    uint8_t* out) {
  constexpr size_t kBlock = 64;
  for (size_t x = 0; x < samples; x += kBlock) {
    uint32_t sums[kBlock];
    std::fill(std::begin(sums), std::end(sums), half_of(weights));
    const uint8_t* p = from + x;
    for (int t = 0; t < weights.used[y]; ++t, p += 2 * stride) {
      const size_t i = size_t(y) * weights.pairs + t;
      const uint32_t w0 = whole_weight(weights, i, 0);
      const uint32_t w1 = whole_weight(weights, i, 1);
      for (size_t k = 0; k < kBlock; ++k) sums[k] += w0 * p[k] + w1 * p[stride + k];
    }
    for (size_t k = 0; k < kBlock; ++k) out[x + k] = rounded(sums[k], weights.fraction_bits);
  }
}

#ifdef MSO_RESIZE_X86
// ---- AVX2 ------------------------------------------------------------------------------
#define MSO_AVX2 __attribute__((target("avx2")))

#define MSO_TARGET MSO_AVX2
#define MSO_VECTOR __m256i
#define MSO_NAME(x) x##_avx2
#define MSO_OP(x) _mm256_##x
#define MSO_WHOLE(x) _mm256_##x##_si256
#define MSO_ADD_PRODUCTS(sum, v, w) _mm256_add_epi32(sum, _mm256_madd_epi16(v, w))
#include "io/resize_vertical.h"
#undef MSO_ADD_PRODUCTS
#undef MSO_TARGET
#undef MSO_VECTOR
#undef MSO_NAME
#undef MSO_OP
#undef MSO_WHOLE

template <bool kWide>
MSO_AVX2 void horizontal_avx2_of(const uint8_t* columns, int begin, const PairedWeights& weights,
                                 uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(half_of(weights));
  const __m128i bits = _mm_cvtsi32_si128(weights.fraction_bits);
  const size_t length = weights.first.size();
  for (size_t x = 0; x < length; ++x) {
    const uint8_t* p = columns + size_t(weights.first[x] - begin) / 2 * 96;
    const uint32_t* low = weights.low.data() + x * weights.pairs;
    const uint32_t* high = kWide ? weights.high.data() + x * weights.pairs : nullptr;
    __m256i l0 = half, l1 = half, l2 = half, l3 = half, l4 = half, l5 = half;
    [[maybe_unused]] __m256i h0 = _mm256_setzero_si256(), h1 = h0, h2 = h0, h3 = h0, h4 = h0, h5 = h0;
    const int used = weights.used[x];
    for (int t = 0; t < used; ++t, p += 96) {
      const __m256i wl = _mm256_set1_epi32(static_cast<int>(low[t]));
      [[maybe_unused]] const __m256i wh = _mm256_set1_epi32(kWide ? static_cast<int>(high[t]) : 0);
#define MSO_STEP(i)                                                                                        \
  {                                                                                                        \
    const __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i))); \
    l##i = _mm256_add_epi32(l##i, _mm256_madd_epi16(v, wl));                                               \
    if constexpr (kWide) h##i = _mm256_add_epi32(h##i, _mm256_madd_epi16(v, wh));                          \
  }
      MSO_STEP(0) MSO_STEP(1) MSO_STEP(2) MSO_STEP(3) MSO_STEP(4) MSO_STEP(5)
#undef MSO_STEP
    }
    // Each pair of vectors holds rows 0–7 and 8–15 of a channel; the packs work in 128-bit halves.
#define MSO_STORE(channel, a, b)                                                                          \
  {                                                                                                       \
    const __m256i words =                                                                                 \
        _mm256_packs_epi32(shifted_avx2<kWide>(l##a, h##a, bits), shifted_avx2<kWide>(l##b, h##b, bits)); \
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);                                        \
    const __m128i bytes =                                                                                 \
        _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));          \
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * channel), bytes);                              \
  }
    MSO_STORE(0, 0, 1)
    MSO_STORE(1, 2, 3)
    MSO_STORE(2, 4, 5)
#undef MSO_STORE
        out += 48;
  }
}
MSO_AVX2 void horizontal_avx2(const uint8_t* columns, int begin, const PairedWeights& weights, uint8_t* out) {
  (weights.wide ? horizontal_avx2_of<true> : horizontal_avx2_of<false>)(columns, begin, weights, out);
}

// ---- AVX-512 ---------------------------------------------------------------------------
#define MSO_AVX512 __attribute__((target("avx512f,avx512bw")))

#define MSO_TARGET MSO_AVX512
#define MSO_VECTOR __m512i
#define MSO_NAME(x) x##_avx512
#define MSO_OP(x) _mm512_##x
#define MSO_WHOLE(x) _mm512_##x##_si512
#define MSO_ADD_PRODUCTS(sum, v, w) _mm512_add_epi32(sum, _mm512_madd_epi16(v, w))
#include "io/resize_vertical.h"
#include "io/resize_horizontal.h"
#undef MSO_ADD_PRODUCTS
#undef MSO_TARGET
#undef MSO_NAME

// With one instruction for two products and their sums.
#define MSO_TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define MSO_NAME(x) x##_vnni
#define MSO_ADD_PRODUCTS(sum, v, w) _mm512_dpwssd_epi32(sum, v, w)
#include "io/resize_vertical.h"
#include "io/resize_horizontal.h"
#endif

}  // namespace

const std::vector<ResizeKernels>& all_resize_kernels() {
  static const std::vector<ResizeKernels> kernels = [] {
    std::vector<ResizeKernels> result;
#ifdef MSO_RESIZE_X86
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
      result.push_back({"AVX-512 VNNI", horizontal_vnni, vertical_vnni});
    if (__builtin_cpu_supports("avx512bw")) result.push_back({"AVX-512", horizontal_avx512, vertical_avx512});
    if (__builtin_cpu_supports("avx2")) result.push_back({"AVX2", horizontal_avx2, vertical_avx2});
#endif
    result.push_back({"plain", horizontal_plain, vertical_plain});
    return result;
  }();
  return kernels;
}

}  // namespace mso
