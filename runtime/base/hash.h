// Checksums: XXH3 of 64 and 128 bits, as fixed-width hexadecimal where they are written to files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mso {

uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash64(std::string_view text, uint64_t seed = 0) { return hash64(text.data(), text.size(), seed); }
std::string hex64(uint64_t value);  // 16 lower-case digits

// XXH3-64 of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, size_t size);
  uint64_t digest() const;

 private:
  void* state_;
};

}  // namespace mso
