// Which memory slice the tensors made by this thread belong to: a stage opens a scope while it computes, and the host pool
// charges the slice of the job's table (node/slice_table.h) that belongs to it.
#pragma once

#include <string_view>

#include "node/slice_table.h"

namespace mso {

// The table of this process, or null (nothing is charged). Set once, before the first scope; outlives every tensor.
void set_slice_table(SliceTable* table);
SliceTable* slice_table();

// Tensors made by this thread until the scope ends belong to the slice of `stage`; outside every scope, to "shared".
class SliceScope {
 public:
  explicit SliceScope(std::string_view stage);
  ~SliceScope();
  SliceScope(const SliceScope&) = delete;

 private:
  int before_;
};

// For the allocator: the slice of this thread, -1 where nothing is to be charged.
int current_slice();

}  // namespace mso
