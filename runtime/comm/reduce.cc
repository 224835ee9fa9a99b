#include "comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/simd.h"

namespace mso {

namespace {

// Wide enough to vectorise, small enough that an accumulator stays in the first-level cache.
constexpr size_t kBlockBytes = 16384;

// Not `restrict`: `out` may be `a`. ivdep says that there is no dependence between iterations.
#define MSO_COMBINE(NAME, TYPE, EXPRESSION)                                      \
  MSO_SIMD_CLONES void NAME(TYPE* out, const TYPE* a, const TYPE* b, size_t n) { \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; ++i) {                        \
      const TYPE x = a[i], y = b[i];                                             \
      out[i] = (EXPRESSION);                                                     \
    }                                                                            \
  }
MSO_COMBINE(sum_f32, float, x + y)
MSO_COMBINE(max_f32, float, x < y ? y : x)
MSO_COMBINE(min_f32, float, y < x ? y : x)
MSO_COMBINE(sum_f64, double, x + y)
MSO_COMBINE(max_f64, double, x < y ? y : x)
MSO_COMBINE(min_f64, double, y < x ? y : x)
MSO_COMBINE(sum_u64, uint64_t, x + y)
MSO_COMBINE(max_u64, uint64_t, x < y ? y : x)
MSO_COMBINE(min_u64, uint64_t, y < x ? y : x)
MSO_COMBINE(or_u64, uint64_t, x | y)
MSO_COMBINE(max_i64, int64_t, x < y ? y : x)
MSO_COMBINE(min_i64, int64_t, y < x ? y : x)
#undef MSO_COMBINE

template <typename T>
void reduce_typed(void* out_bytes, std::span<const void* const> inputs, size_t count,
                  void (*combine)(T*, const T*, const T*, size_t)) {
  T* out = static_cast<T*>(out_bytes);
  const auto input = [&](size_t r) { return static_cast<const T*>(inputs[r]); };
  if (inputs.size() == 2) return combine(out, input(0), input(1), count);
  // `out` may be a later input, so a block is complete before any of it is written.
  constexpr size_t kBlock = kBlockBytes / sizeof(T);
  alignas(64) T accumulator[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    combine(accumulator, input(0) + begin, input(1) + begin, n);
    for (size_t r = 2; r + 1 < inputs.size(); ++r) combine(accumulator, accumulator, input(r) + begin, n);
    combine(out + begin, accumulator, input(inputs.size() - 1) + begin, n);
  }
}

}  // namespace

void check_reducible(DType dtype, ReduceOp op) {
  const bool known =
      dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kU64;
  if (known && (op != ReduceOp::kBitOr || dtype == DType::kU64)) return;
  throw Error("this reduction does not exist",
              std::string(name_of(dtype)) + (op == ReduceOp::kBitOr ? " with bitwise or" : ""),
              "sum, max and min take F32, F64, I64 and U64; bitwise or takes U64");
}

void reduce_in_order(void* out, std::span<const void* const> inputs, size_t count, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  if (count == 0) return;
  if (inputs.size() == 1) {
    if (out != inputs[0]) std::memcpy(out, inputs[0], count * size_of(dtype));
    return;
  }
  const auto choose = [op](auto sum, auto max, auto min) {
    return op == ReduceOp::kSum ? sum : op == ReduceOp::kMax ? max : min;
  };
  switch (dtype) {
    case DType::kF32:
      return reduce_typed<float>(out, inputs, count, choose(sum_f32, max_f32, min_f32));
    case DType::kF64:
      return reduce_typed<double>(out, inputs, count, choose(sum_f64, max_f64, min_f64));
    case DType::kI64:
      // Sums in unsigned arithmetic: wrapping around is defined, and the bits are the same.
      if (op == ReduceOp::kSum) return reduce_typed<uint64_t>(out, inputs, count, sum_u64);
      return reduce_typed<int64_t>(out, inputs, count, op == ReduceOp::kMax ? max_i64 : min_i64);
    default:
      if (op == ReduceOp::kBitOr) return reduce_typed<uint64_t>(out, inputs, count, or_u64);
      return reduce_typed<uint64_t>(out, inputs, count, choose(sum_u64, max_u64, min_u64));
  }
}

}  // namespace mso
