// Which elements of which snapshot files go where in a rank's new shard: pure, for any old and new number of
// ranks.
#pragma once

#include <string>
#include <vector>

#include "ckpt/recovery.h"
#include "ckpt/shard_file.h"

namespace mso {

// A run of consecutive elements.
struct CopyRun {
  size_t source_buffer = 0;    // index into the file's buffers
  uint64_t source_offset = 0;  // elements from the buffer's start
  size_t target = 0;           // index into the targets
  uint64_t target_offset = 0;  // elements from the target's start
  uint64_t count = 0;
};

struct CopyPlan {
  std::vector<std::vector<CopyRun>> runs;    // per file, ascending in the file
  std::vector<std::string> missing_buffers;  // not required and in no file
  uint64_t bytes = 0;
};

// `files`: the buffers of each file of a state. Error naming buffer and tensor where one is missing or not
// whole, or has another shape or type.
CopyPlan plan_copies(const std::vector<std::vector<BufferInfo>>& files,
                     const std::vector<TargetBuffer>& targets);

// Sets to 0 what no slice covers; all of it where the buffer is missing.
void zero_padding(const TargetBuffer& target, const CopyPlan& plan);

}  // namespace mso
