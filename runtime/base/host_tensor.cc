#include "base/host_tensor.h"

#include <array>

#include "base/error.h"

namespace mso {

namespace {
struct Entry {
  DType dtype;
  const char* name;
  size_t size;
};
constexpr std::array<Entry, 13> kEntries{{{DType::kU8, "U8", 1},
                                          {DType::kI32, "I32", 4},
                                          {DType::kI64, "I64", 8},
                                          {DType::kF16, "F16", 2},
                                          {DType::kBF16, "BF16", 2},
                                          {DType::kF32, "F32", 4},
                                          {DType::kF64, "F64", 8},
                                          {DType::kBool, "BOOL", 1},
                                          {DType::kI8, "I8", 1},
                                          {DType::kI16, "I16", 2},
                                          {DType::kU16, "U16", 2},
                                          {DType::kU32, "U32", 4},
                                          {DType::kU64, "U64", 8}}};
const Entry& entry(DType dtype) { return kEntries.at(static_cast<size_t>(dtype)); }
}  // namespace

size_t size_of(DType dtype) { return entry(dtype).size; }
const char* name_of(DType dtype) { return entry(dtype).name; }

DType dtype_from_name(const std::string& name) {
  for (const Entry& e : kEntries)
    if (name == e.name) return e.dtype;
  throw Error("unknown element type", name, "supported: U8 … U64, I8 … I64, F16, BF16, F32, F64, BOOL");
}

}  // namespace mso
