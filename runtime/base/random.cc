#include "base/random.h"

namespace mso {

KeyedPermutation::KeyedPermutation(uint64_t n, uint64_t key) : n_(n), key_(key), half_bits_(1) {
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

uint64_t KeyedPermutation::operator()(uint64_t i) const {
  const uint64_t mask = half_bits_ == 32 ? 0xffffffffULL : (uint64_t{1} << half_bits_) - 1;
  do {  // walk the cycle until the value falls inside [0, n): at most a factor 4 of the range is outside
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      uint64_t next = left ^ (random_bits({key_, round, right}) & mask);
      left = right;
      right = next;
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

}  // namespace mso
