// What the CUDA kernels compute for one element, as functions that also run on the CPU: so they are tested
// where there is no GPU. Included by .cu and .cc files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define MSO_HOST_DEVICE __host__ __device__ inline
#else
#define MSO_HOST_DEVICE inline
#endif

namespace mso {

struct SumOp {
  template <typename T>
  MSO_HOST_DEVICE static T apply(T a, T b) {
    return a + b;
  }
};
struct MaxOp {
  template <typename T>
  MSO_HOST_DEVICE static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct MinOp {
  template <typename T>
  MSO_HOST_DEVICE static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct BitOrOp {
  template <typename T>
  MSO_HOST_DEVICE static T apply(T a, T b) {
    return a | b;
  }
};

// Element i of the reduction over `ranks` contributions in the order of ranks: `own` is rank's, `others`
// holds the rest one after the other, `stride` elements apart. Signed sums: call with the unsigned type.
template <typename Op, typename T>
MSO_HOST_DEVICE T reduce_element(const T* own, int rank, const T* others, size_t stride, int ranks,
                                 size_t i) {
  T sum = rank == 0 ? own[i] : others[i];
  for (int r = 1; r < ranks; ++r) {
    sum = Op::apply(sum, r == rank ? own[i] : others[static_cast<size_t>(r < rank ? r : r - 1) * stride + i]);
  }
  return sum;
}

// bfloat16 is the upper half of float32.
MSO_HOST_DEVICE float bf16_to_f32(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN with its sign.
MSO_HOST_DEVICE uint16_t f32_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace mso
