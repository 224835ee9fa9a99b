// A private copy of the state, for levels on slow storage: written from it, they never hold up the optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ckpt/snapshot.h"

namespace mso {

// Kept between snapshots, so that its pages are made once.
class Staging {
 public:
  Staging() = default;
  ~Staging() { release(); }
  Staging(const Staging&) = delete;

  // Copies the buffers of `view`, a piece at a time with its bytes told to `after_piece` (which may throw to stop); the
  // result's buffers point into this object. Error where there is no memory.
  StateView copy(StateView view, const std::function<void(uint64_t)>& after_piece);

 private:
  void release();
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mso
