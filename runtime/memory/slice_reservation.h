// Memory that counts in the job's slice table (node/slice_table.h) for as long as the reservation lives: the flat buffers of
// weights, gradients and optimizer state, which do not come from the pool of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node/slice_table.h"

namespace mso {

class SliceReservation {
 public:
  SliceReservation() = default;
  // Takes `bytes_of_stage` from the slices that belong to the stages ("vision_encoder" → vision, else shared), all of it or,
  // with an Error (kBadUsage) that names slice, need, limit and option, nothing. `what` is for that message: "weights and
  // gradients". Without a table, and for stages that no slice limits, nothing is counted. The table must outlive this.
  SliceReservation(const std::string& what, const std::map<std::string, uint64_t>& bytes_of_stage);
  ~SliceReservation();
  SliceReservation(SliceReservation&& other) noexcept { swap(other); }
  SliceReservation& operator=(SliceReservation&& other) noexcept {
    swap(other);
    return *this;
  }

 private:
  void swap(SliceReservation& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(held_, other.held_);
  }
  void give_back() noexcept;

  SliceTable* table_ = nullptr;
  std::vector<std::pair<int, uint64_t>> held_;  // slice, bytes
};

}  // namespace mso
