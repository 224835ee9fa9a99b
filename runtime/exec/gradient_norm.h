// Σ g² of a gradient shard, for the global norm.
#pragma once

#include <cstddef>

namespace mso {

// In double, in one fixed order of additions whatever the instruction set.
double sum_of_squares(const float* values, size_t count);

}  // namespace mso
