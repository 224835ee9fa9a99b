#include "memory/flat_buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;

size_t rounded(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

Error out_of_memory(size_t bytes) {
  return Error("out of memory", std::to_string(bytes) + " bytes for a flat buffer", "see mso plan for what a rank needs");
}
}

void* allocate_zeroed(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes < kHugePage) {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == nullptr) throw out_of_memory(bytes);
    std::memset(data, 0, bytes);
    return data;
  }
  // Fresh pages are zero already, and are only made when first written: a buffer that a snapshot fills is written once.
  const size_t reserved = rounded(bytes) + kHugePage;
  void* begin = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw out_of_memory(bytes);
  auto* first = static_cast<std::byte*>(begin);
  auto* data = reinterpret_cast<std::byte*>(rounded(reinterpret_cast<uintptr_t>(first)));
  if (data > first) ::munmap(first, data - first);
  std::byte* end = data + rounded(bytes);
  if (first + reserved > end) ::munmap(end, first + reserved - end);
  ::madvise(data, rounded(bytes), MADV_HUGEPAGE);
  return data;
}

void release_zeroed(void* data, size_t bytes) {
  if (data == nullptr) return;
  if (bytes < kHugePage)
    std::free(data);
  else
    ::munmap(data, rounded(bytes));
}

}  // namespace mso
