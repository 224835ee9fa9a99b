// No header of its own: the horizontal pass of resampling with vectors of 512 bits; wanted are MSO_TARGET, MSO_NAME and
// MSO_ADD_PRODUCTS as for io/resize_vertical.h, and what that one defines.
template <bool kWide>
MSO_TARGET void MSO_NAME(horizontal_of)(const uint8_t* columns, int begin, const PairedWeights& weights,
                                     uint8_t* out) {
  const __m512i half = _mm512_set1_epi32(half_of(weights));
  const __m128i bits = _mm_cvtsi32_si128(weights.fraction_bits);
  const size_t length = weights.first.size();
  for (size_t x = 0; x < length; ++x) {
    const uint8_t* p = columns + size_t(weights.first[x] - begin) / 2 * 96;
    const uint32_t* low = weights.low.data() + x * weights.pairs;
    const uint32_t* high = kWide ? weights.high.data() + x * weights.pairs : nullptr;
    __m512i l0 = half, l1 = half, l2 = half;
    [[maybe_unused]] __m512i h0 = _mm512_setzero_si512(), h1 = h0, h2 = h0;
    const int used = weights.used[x];
    for (int t = 0; t < used; ++t, p += 96) {
      const __m512i wl = _mm512_set1_epi32(static_cast<int>(low[t]));
      [[maybe_unused]] const __m512i wh = _mm512_set1_epi32(kWide ? static_cast<int>(high[t]) : 0);
#define MSO_STEP(i)                                                                             \
  {                                                                                             \
    const __m512i v =                                                                           \
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i))); \
    l##i = MSO_ADD_PRODUCTS(l##i, v, wl);                                                       \
    if constexpr (kWide) h##i = MSO_ADD_PRODUCTS(h##i, v, wh);                                  \
  }
      MSO_STEP(0) MSO_STEP(1) MSO_STEP(2)
#undef MSO_STEP
    }
    const __m512i zero = _mm512_setzero_si512();
#define MSO_STORE(i)                                         \
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * i), \
                   _mm512_cvtusepi32_epi8(_mm512_max_epi32(MSO_NAME(shifted)<kWide>(l##i, h##i, bits), zero)));
    MSO_STORE(0)
    MSO_STORE(1)
    MSO_STORE(2)
#undef MSO_STORE
        out += 48;
  }
}
MSO_TARGET void MSO_NAME(horizontal)(const uint8_t* columns, int begin, const PairedWeights& weights,
                                  uint8_t* out) {
  (weights.wide ? MSO_NAME(horizontal_of)<true> : MSO_NAME(horizontal_of)<false>)(columns, begin, weights, out);
}
