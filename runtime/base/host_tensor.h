// A tensor in host memory, without torch: what the data pipeline and the safetensors files hand over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/host_bytes.h"

namespace mso {

enum class DType : uint8_t { kU8, kI32, kI64, kF16, kBF16, kF32, kF64, kBool, kI8, kI16, kU16, kU32, kU64 };

size_t size_of(DType dtype);                    // bytes of one element
const char* name_of(DType dtype);               // safetensors spelling: "F32", "BF16", "I64"…
DType dtype_from_name(const std::string& name);  // Error on an unknown one

// Row-major, contiguous. bytes.size() == product(shape) * size_of(dtype).
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  HostBytes bytes;

  // Zeros.
  static HostTensor make(DType dtype, std::vector<int64_t> shape) {
    HostTensor t{dtype, std::move(shape), {}};
    t.bytes = HostBytes(t.byte_count());
    return t;
  }
  size_t byte_count() const { return static_cast<size_t>(count()) * size_of(dtype); }
  int64_t count() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
  template <typename T>
  T* data() { return reinterpret_cast<T*>(bytes.data()); }
  template <typename T>
  const T* data() const { return reinterpret_cast<const T*>(bytes.data()); }
};

}  // namespace mso
