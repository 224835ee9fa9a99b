#include "memory/flat_buffer.h"

#include <sys/mman.h>

#include <string>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

void* allocate_zeroed(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr)
    throw Error("out of memory", std::to_string(bytes) + " bytes for a flat buffer",
                "see mso plan for what a rank needs");
  if (alignment == kHugePage) ::madvise(data, rounded, MADV_HUGEPAGE);
  __builtin_memset(data, 0, bytes);
  return data;
}

void release_zeroed(void* data, size_t) {
  std::free(data);
}

}  // namespace mso
