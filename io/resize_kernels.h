// The two inner loops of resampling, for AVX-512, AVX2 and any machine; all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/transpose_bytes.h"

namespace mso {

// Weights are fixed-point with 22 bits after the point: 8 bits of sample and 2 of head room for overshoot
// in 32.
constexpr int kResizeFractionBits = 32 - 8 - 2;

// The rows a horizontal pass handles at a time.
constexpr int kResizeLanes = kTransposedRows;

// Weights of a range of output positions, two neighbouring inputs at a time.
// Wide (Pillow's): kResizeFractionBits after the point; a weight w is split into w = high · 2^15 + low with
// 0 <= low < 2^15, so that 16-bit multiply-add instructions do; sums wrap at 32 bits, which the final sum never
// needs. Narrow (torchvision's): signed 16 bits, all in `low`, `fraction_bits` of them (or more than there are)
// after the point.
// In `low` and `high` the first input's part stands in the lower half.
struct PairedWeights {
  int pairs = 0;           // per output position, some of them zero
  std::vector<int> first;  // first input position
  std::vector<int> used;   // pairs that are not all zero
  std::vector<uint32_t> low, high;
  bool wide = true;
  int fraction_bits = kResizeFractionBits;
};

// Each pass takes wide and narrow weights.
struct ResizeKernels {
  const char* name;
  // `columns`: input of sixteen rows as [position / 2][channel][row][position % 2] from input position
  // `begin` (even) on; all first positions are even. `out`: [output position][channel][row].
  void (*horizontal)(const uint8_t* columns, int begin, const PairedWeights& weights, uint8_t* out);
  // Output row `y`: rows from `from` on, `stride` bytes apart, `samples` rounded up to a multiple of 64 are
  // read and written, and one row more is read than has weights.
  void (*vertical)(const uint8_t* from, size_t stride, const PairedWeights& weights, int y, size_t samples,
                   uint8_t* out);
};

// All that this machine can run, best first (for tests); the best.
const std::vector<ResizeKernels>& all_resize_kernels();
inline const ResizeKernels& resize_kernels() {
  return all_resize_kernels().front();
}

}  // namespace mso
