#include "base/host_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mso {

HostBytes HostBytes::undefined(size_t size) {
  HostBytes bytes;
  bytes.heap_ = std::make_unique_for_overwrite<std::byte[]>(size);
  bytes.size_ = size;
  return bytes;
}

HostBytes::HostBytes(const HostBytes& other) {
  if (other.empty()) return;
  *this = undefined(other.size_);
  std::memcpy(heap_.get(), other.data(), size_);
}

void HostBytes::resize(size_t size) {
  if (size <= size_) {
    size_ = size;
    return;
  }
  HostBytes grown;
  grown.heap_ = std::make_unique<std::byte[]>(size);
  grown.size_ = size;
  if (size_ > 0) std::memcpy(grown.heap_.get(), data(), size_);
  swap(grown);
}

bool operator==(const HostBytes& a, const HostBytes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace mso
