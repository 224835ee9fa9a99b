// What a snapshot is made of, independent of level, place and number of ranks. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/host_tensor.h"
#include "comm/flat_layout.h"

namespace mso {

// One flat buffer of a rank's state, read in place ("master", "exp_avg", "exp_avg_sq", "gradient.<step>").
struct StateBuffer {
  std::string name;
  DType dtype = DType::kF32;
  const void* data = nullptr;
  size_t count = 0;                 // elements
  std::vector<TensorSlice> slices;  // what lies where in it
};

// A rank's part of the state after `step` finished steps.
struct StateView {
  uint64_t step = 0;
  std::vector<StateBuffer> buffers;
  // Small named texts (JSON): "cursor", "ledger_tail", "random", "config", "plan", "tokenizer"…
  std::map<std::string, std::string> records;
};

enum class SnapshotLevel { kL0 = 0, kL1 = 1, kL2 = 2 };

}  // namespace mso
