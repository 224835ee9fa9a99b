// The slices of a device as its tasks share them at run time: limits, and what every task has taken. Lies in shared memory
// (the job's snapshot directory) where several tasks share a device, else in this process alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "node/gpu_slices.h"

namespace mso {

class SliceTable {
 public:
  // From MSO_GPU_SLICES, task number SLURM_LOCALID and folder MSO_SNAPSHOT_DIR; null where the variable is not set. Error
  // where it is damaged.
  static std::unique_ptr<SliceTable> from_environment();
  // `file` empty: private to this process. `task`: row of this process, 0 … kMaxTasks-1; what a dead process left in a row is
  // taken back.
  SliceTable(const std::vector<Slice>& slices, const std::string& file, int task);
  ~SliceTable();
  SliceTable(const SliceTable&) = delete;

  static constexpr int kMaxTasks = 128;

  // The slice a stage uses: its own ("vision_encoder" → vision, "llm_decoder" → llm, both projectors → projector), else "shared";
  // -1: neither exists, the stage is not limited.
  int slice_of_stage(std::string_view stage) const;
  // False where the slice has not that much left, counting all tasks. slice -1: always true, nothing counted. Thread-safe.
  bool take(int slice, uint64_t bytes);
  void give(int slice, uint64_t bytes);

  struct Use {
    std::string name;
    uint64_t limit = 0, used = 0, mine = 0, peak = 0;  // peak of `used` as this process saw it
  };
  std::vector<Use> use() const;
  // "vision 1.2 of 24 GiB, llm …"
  std::string describe() const;

 private:
  struct Shared;
  Shared* shared_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::vector<Slice> slices_;
  int task_ = 0;
  std::vector<std::atomic<uint64_t>> peak_;
};

}  // namespace mso
