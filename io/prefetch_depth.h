// How many samples of a modality are kept decoded ahead: a pure rule on what the last step showed.
#pragma once

#include <cstdint>

namespace mso {

struct PrefetchBounds {
  uint64_t least = 1, most = 1;  // samples of this rank
};
// `configured`: mdp.prefetch_depth; `per_step`: samples of the modality this rank trains on in a step. At least two
// steps' worth, so that one is decoded while the other is trained on; at most eight times the larger of both.
PrefetchBounds prefetch_bounds(uint64_t configured, uint64_t per_step);

// What the step that just began saw of a modality's buffer.
struct PrefetchSample {
  bool waited = false;      // a due sample was not there
  uint64_t ready = 0;       // decoded samples left in the buffer once the step had its own
  uint64_t per_step = 0;
};
// Doubled at once when a step had to wait; one step's worth less after kCalmSteps steps in a row that left more than half
// the depth unused, so that memory is given back slowly. Always within the bounds.
class BufferDepth {
 public:
  static constexpr int kCalmSteps = 32;
  BufferDepth() : BufferDepth(PrefetchBounds()) {}
  explicit BufferDepth(PrefetchBounds bounds) : bounds_(bounds), depth_(bounds.least) {}
  void set_bounds(PrefetchBounds bounds);
  void observe(const PrefetchSample& sample);
  uint64_t depth() const { return depth_; }

 private:
  PrefetchBounds bounds_;
  uint64_t depth_;
  int calm_ = 0;
};

}  // namespace mso
