// Finds every bad sample of a data set in one parallel pass (`mso data verify`).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/dataset.h"

namespace mso {

// One thing that is wrong with a sample; a sample may have several.
struct SampleFault {
  uint64_t id = 0;
  std::string reason;  // as in the ledger: "decode_error", "empty_caption", …
  std::string detail;  // a sentence
  std::string member;  // extension of the broken member; empty: the sample as a whole
};

struct VerifyOptions {
  int threads = 0;              // 0: all cores of the process
  std::string caption = "txt";  // as data.caption
};

// Every file of every sample is read, and decoded in full where it is one that training can use: pictures, sounds,
// videos, and the caption. By id, then in the order of the sample's members. `progress(done, total)` comes from this thread.
std::vector<SampleFault> verify_dataset(const Dataset& dataset, const VerifyOptions& options = {},
                                        const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace mso
