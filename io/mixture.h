// The parts of a mixture of data sets, from data.path and data.weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dataset.h"
#include "io/sample_order.h"

namespace mso {

// One part for each path, with its weight. `paths` are those `data` was opened with; its last shards may be held out.
// Error (kBadUsage) unless there are as many weights as paths.
std::vector<MixturePart> mixture_parts(const Dataset& data, const std::vector<std::string>& paths, const std::vector<int64_t>& weights);

}  // namespace mso
