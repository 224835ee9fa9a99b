// Fuzz target: the bytes of a safetensors file. Whatever comes in is refused with an mso::Error, or every
// tensor lies inside the file and its bytes can be read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const mso::SafetensorsHeader header = mso::parse_safetensors_header(bytes, size, "fuzz");
    uint64_t total = 0, sum = 0;
    for (const auto& [name, entry] : header.tensors) {
      if (entry.begin > entry.end || header.data_offset + entry.end > size) abort();
      if (static_cast<uint64_t>(entry.count()) * mso::size_of(entry.dtype) != entry.end - entry.begin)
        abort();
      total += entry.end - entry.begin;
      for (uint64_t i = entry.begin; i < entry.end; ++i) sum += data[header.data_offset + i];
      switch (entry.dtype) {
        case mso::DType::kF16:
        case mso::DType::kBF16:
        case mso::DType::kF32:
        case mso::DType::kF64:
          for (int64_t i = 0; i < entry.count(); ++i) {
            float value;
            mso::convert_to_f32(entry.dtype,
                                reinterpret_cast<const std::byte*>(data) + header.data_offset + entry.begin +
                                    i * mso::size_of(entry.dtype),
                                &value, 1);
            sum += value > 0;
          }
          break;
        default:
          break;
      }
    }
    if (total != size - header.data_offset) abort();
    static volatile uint64_t used;
    used = sum;
  } catch (const mso::Error&) {
  }
  return 0;
}
