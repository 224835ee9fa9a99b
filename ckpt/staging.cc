#include "ckpt/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kPiece = 1 << 20;
size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

StateView Staging::copy(StateView view, const std::function<void(uint64_t)>& after_piece) {
  size_t need = 0;
  for (const StateBuffer& b : view.buffers) need += padded(b.count * size_of(b.dtype));
  if (need > size_) {
    release();
    void* at = ::mmap(nullptr, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      throw system_error("no memory for a private copy of the state", std::to_string(need) + " bytes");
    data_ = static_cast<char*>(at);
    size_ = need;
  }
  char* to = data_;
  for (StateBuffer& b : view.buffers) {
    const size_t bytes = b.count * size_of(b.dtype);
    for (size_t i = 0; i < bytes; i += kPiece) {
      const size_t n = std::min(kPiece, bytes - i);
      std::memcpy(to + i, static_cast<const char*>(b.data) + i, n);
      after_piece(n);
    }
    b.data = to;
    to += padded(bytes);
  }
  return view;
}

void Staging::release() {
  if (data_) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace mso
