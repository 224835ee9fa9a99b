// What is intact of a sample, for embeddings: its picture or first frame and its text, and what is broken about it.
#pragma once

#include <string>

#include "io/dataset.h"
#include "io/embedder.h"
#include "io/modality.h"

namespace mso {

// What a sample counts as (io/modality.h), by the extensions of its members.
Modality costliest_medium(const ShardSample& sample);

struct ReadContent {
  SampleContent content;
  Modality modality = Modality::kText;
  std::string reason, detail;  // of the first thing that is broken, as in the ledger; empty: healthy
};

// Reads and decodes the picture of a sample (as `embedder` wants it decoded) or the first frame of its video, and reads
// its caption, `caption` as in data.caption. Never throws for what the shard holds.
ReadContent read_content(const Dataset& dataset, uint64_t id, const std::string& caption, const Embedder& embedder);

}  // namespace mso
