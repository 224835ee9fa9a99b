// No header of its own: the vertical pass of resampling for one instruction set. resize_kernels.cc includes
// it once for each, for a function's target cannot be a template's parameter. Wanted:
//   MSO_TARGET      the attribute                   MSO_VECTOR     __m256i
//   MSO_NAME(x)     x_avx2                          MSO_OP(x)      _mm256_x
//   MSO_WHOLE(x)    _mm256_x_si256, on the vector as a whole
//   MSO_ADD_PRODUCTS(sum, v, w)   sum + v₀·w₀ + v₁·w₁ of pairs of 16-bit numbers, wrapping
template <bool kWide>
inline __attribute__((always_inline)) MSO_TARGET MSO_VECTOR MSO_NAME(shifted)(MSO_VECTOR low, MSO_VECTOR high,
                                                                              __m128i bits) {
  if constexpr (kWide)
    return MSO_OP(srai_epi32)(MSO_OP(add_epi32)(MSO_OP(slli_epi32)(high, kLowBits), low),
                              kResizeFractionBits);
  return MSO_OP(sra_epi32)(low, bits);
}

template <bool kWide>
MSO_TARGET void MSO_NAME(vertical_of)(const uint8_t* from, size_t stride, const PairedWeights& weights, int y,
                                      size_t samples, uint8_t* out) {
  using Vector = MSO_VECTOR;
  const Vector half = MSO_OP(set1_epi32)(half_of(weights)), zero = MSO_WHOLE(setzero)();
  const __m128i bits = _mm_cvtsi32_si128(weights.fraction_bits);
  const uint32_t* low = weights.low.data() + size_t(y) * weights.pairs;
  [[maybe_unused]] const uint32_t* high = kWide ? weights.high.data() + size_t(y) * weights.pairs : nullptr;
  const int used = weights.used[y];
  for (size_t x = 0; x < samples; x += sizeof(Vector)) {
    const uint8_t* p = from + x;
    Vector l0 = half, l1 = half, l2 = half, l3 = half;
    [[maybe_unused]] Vector h0 = zero, h1 = zero, h2 = zero, h3 = zero;
    for (int t = 0; t < used; ++t, p += 2 * stride) {
      const Vector wl = MSO_OP(set1_epi32)(static_cast<int>(low[t]));
      [[maybe_unused]] const Vector wh = MSO_OP(set1_epi32)(kWide ? static_cast<int>(high[t]) : 0);
      const Vector a = MSO_WHOLE(loadu)(reinterpret_cast<const Vector*>(p));
      const Vector b = MSO_WHOLE(loadu)(reinterpret_cast<const Vector*>(p + stride));
      const Vector ab0 = MSO_OP(unpacklo_epi8)(a, b), ab1 = MSO_OP(unpackhi_epi8)(a, b);
#define MSO_STEP(i, v)                                                              \
  {                                                                                 \
    l##i = MSO_ADD_PRODUCTS(l##i, v, wl);                                           \
    if constexpr (kWide) h##i = MSO_ADD_PRODUCTS(h##i, v, wh);                      \
  }
      MSO_STEP(0, MSO_OP(unpacklo_epi8)(ab0, zero))
      MSO_STEP(1, MSO_OP(unpackhi_epi8)(ab0, zero))
      MSO_STEP(2, MSO_OP(unpacklo_epi8)(ab1, zero))
      MSO_STEP(3, MSO_OP(unpackhi_epi8)(ab1, zero))
#undef MSO_STEP
    }
    // Unpacking and packing both work within 128-bit parts, so the order comes out right.
    const Vector words0 = MSO_OP(packs_epi32)(MSO_NAME(shifted) < kWide > (l0, h0, bits),
                                              MSO_NAME(shifted) < kWide > (l1, h1, bits));
    const Vector words1 = MSO_OP(packs_epi32)(MSO_NAME(shifted) < kWide > (l2, h2, bits),
                                              MSO_NAME(shifted) < kWide > (l3, h3, bits));
    MSO_WHOLE(storeu)(reinterpret_cast<Vector*>(out + x), MSO_OP(packus_epi16)(words0, words1));
  }
}
MSO_TARGET void MSO_NAME(vertical)(const uint8_t* from, size_t stride, const PairedWeights& weights, int y,
                                   size_t samples, uint8_t* out) {
  (weights.wide ? MSO_NAME(vertical_of) < true > : MSO_NAME(vertical_of) < false >)(from, stride, weights, y,
                                                                                    samples, out);
}
