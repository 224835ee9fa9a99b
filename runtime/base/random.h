// Counter-based random numbers: a value is a pure function of its key, so that data order, dropout and
// initialisation do not depend on threads, ranks or what was drawn before.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace mso {

// 64 well-mixed bits of the key (finaliser of SplitMix64, Steele et al. 2014, applied per word).
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
inline uint64_t random_bits(std::initializer_list<uint64_t> key) {
  uint64_t h = 0x6d736f5f6b657931ULL;
  for (uint64_t word : key) h = mix64(h ^ word);
  return h;
}
// Uniform in [0, 1) with 53 bits.
inline double random_uniform(std::initializer_list<uint64_t> key) {
  return static_cast<double>(random_bits(key) >> 11) * 0x1.0p-53;
}

// A keyed bijection of [0, n): computed, not stored (Feistel network of 4 rounds with cycle walking,
// Black & Rogaway 2002). Used for the order of samples in an epoch.
class KeyedPermutation {
 public:
  // n ≥ 1.
  KeyedPermutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t i) const;  // i < n
  uint64_t size() const { return n_; }

 private:
  uint64_t n_, key_;
  int half_bits_;
};

}  // namespace mso
