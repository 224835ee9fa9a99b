// The caption of a sample: found, read and checked.
#pragma once

#include <cstdint>
#include <string>

#include "io/dataset.h"

namespace mso {

struct CaptionResult {
  std::string text;            // valid UTF-8, trimmed; empty where it cannot be used
  std::string reason, detail;  // why not, as in the ledger; empty: it can
  uint64_t bytes_read = 0;
};

// `caption` as data.caption: "txt", or a JSON pointer into the .json member; with "txt" of a conversation what its turns say
// (io/conversation_sample.h). Never throws for what the shard holds.
CaptionResult read_caption(const Dataset& dataset, uint64_t id, const ShardSample& sample, const std::string& caption);

}  // namespace mso
