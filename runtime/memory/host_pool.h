// The allocator of host tensors: freed blocks are kept and used again, so that a training step, which makes
// and drops the same tensors each time, pays for no page fault. Large blocks lie on huge pages where the
// kernel gives them.
#pragma once

#include <cstddef>

namespace mso {

struct HostPoolUse {
  size_t live = 0, kept = 0;  // bytes in use, and free but kept
};

// Makes every host tensor of this process come from the pool; tensors made before keep their memory. Safe to
// call again. What is in use and kept together stays below one and a half times the most that was ever in
// use. Thread-safe. Does nothing under AddressSanitizer, which could not see into the pool.
void install_host_pool();

HostPoolUse host_pool_use();

}  // namespace mso
