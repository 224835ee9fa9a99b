#include "memory/slice_reservation.h"

#include "base/error.h"
#include "base/units.h"
#include "memory/slice_scope.h"

namespace mso {

namespace {
std::string size_text(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }
}  // namespace

SliceReservation::SliceReservation(const std::string& what, const std::map<std::string, uint64_t>& bytes_of_stage)
    : table_(slice_table()) {
  if (!table_) return;
  std::map<int, uint64_t> needs;  // stages without a slice of their own share one
  for (const auto& [stage, bytes] : bytes_of_stage)
    if (const int slice = table_->slice_of_stage(stage); slice >= 0 && bytes > 0) needs[slice] += bytes;
  for (const auto& [slice, bytes] : needs) {
    if (table_->take(slice, bytes)) {
      held_.emplace_back(slice, bytes);
      continue;
    }
    const SliceTable::Use use = table_->use().at(static_cast<size_t>(slice));
    give_back();
    throw Error("a memory slice is full",
                what + " need " + size_text(bytes) + " of " + use.name + ", which is " + size_text(use.limit) +
                    (use.used > 0 ? " with " + size_text(use.used) + " in use" : ""),
                "make it larger: --mso-gpu-slices=" + use.name + ":SIZE (ero.gpu_slices), with room for the tensors of a step, "
                "or use more ranks on more devices: each keeps a smaller part of the optimizer's state",
                ExitCode::kBadUsage);
  }
}

SliceReservation::~SliceReservation() { give_back(); }

void SliceReservation::give_back() noexcept {
  for (const auto& [slice, bytes] : held_) table_->give(slice, bytes);
  held_.clear();
}

}  // namespace mso
