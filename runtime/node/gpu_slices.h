// Memory slices of a GPU by part of the model: parsing, checking against the devices, and what each task is told.
// Slices are cooperation within a job, not isolation. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/node_facts.h"

namespace mso {

inline constexpr int kMaxSlices = 8;
// The names a slice may have; "shared" is what stages without a slice of their own use.
const std::vector<std::string>& slice_names();  // vision audio projector llm cross experts shared

struct Slice {
  std::string name;
  uint64_t bytes = 0;
  bool operator==(const Slice&) const = default;
};

// "vision:24G,llm:32G,shared:24G": known names, each once, 1 MiB to 16 TiB. Mistakes are appended, one sentence each.
std::optional<std::vector<Slice>> parse_slices(std::string_view text, std::vector<std::string>& mistakes);
std::string format_slices(const std::vector<Slice>& slices);  // canonical, in bytes: "vision:25769803776,…"
uint64_t slices_total(const std::vector<Slice>& slices);

// One device a task can use: a GPU, a MIG instance, or, without GPUs, the host memory of a task.
struct SliceDevice {
  std::string id;  // UUID; "host" without GPU
  std::string label;  // for messages: "GPU 3 (NVIDIA H200)"
  uint64_t memory_bytes = 0;
  int numa = -1;
  bool operator==(const SliceDevice&) const = default;
};

// Devices of the GPUs a job has on this node (`indices` as in SLURM_JOB_GPUS, NVML's order; empty: none). A GPU split by MIG
// counts as its instances.
std::vector<SliceDevice> slice_devices(const std::vector<GpuFact>& gpus, const std::vector<int>& indices);
// Picks by what CUDA_VISIBLE_DEVICES says ("0,1", "GPU-…", "MIG-…"); unknown entries are appended to `mistakes`.
std::vector<SliceDevice> visible_devices(const std::vector<GpuFact>& gpus, std::string_view visible,
                                         std::vector<std::string>& mistakes);

// What one task is told (variable MSO_GPU_SLICES).
struct TaskSlices {
  std::string device;         // SliceDevice::id
  int table = 0;              // tasks with the same number share one table on this node
  int sharers = 1;            // tasks on that device
  std::vector<Slice> slices;  // of the device, all sharers together
  bool operator==(const TaskSlices&) const = default;
};
// "device=GPU-…;table=0;sharers=2;slices=vision:25769803776,…"
std::string format_task_slices(const TaskSlices& task);
std::optional<TaskSlices> parse_task_slices(std::string_view text);

struct SlicePlan {
  std::vector<TaskSlices> tasks;
  std::vector<std::string> mistakes;  // the sum does not fit a device, named with its numbers; empty: fits
};
// Task k of `tasks` uses device k % devices (or all of them the one they see: give `device_of_task`). No device: each task
// has a host table of its own, and `host_memory_bytes` (0: unknown) is what the tasks' sums must fit together.
SlicePlan plan_slices(const std::vector<Slice>& slices, const std::vector<SliceDevice>& devices, int tasks,
                      uint64_t host_memory_bytes, const std::vector<int>& device_of_task = {});

// Limits by MPS, only where the admin turned it on and gres/mps does not manage it.
struct MpsFacts {
  bool admin_wants = false;     // plugstack argument
  bool gres_mps = false;        // SLURM_JOB_GRES or CUDA_MPS_… of gres/mps present
  bool daemon_running = false;  // the control pipe is there
  bool mig = false;             // MIG instances: one client a device, limits there would double
};
struct MpsDecision {
  bool set_limits = false;
  std::string why;  // one clause, for logs and `mso check`
};
MpsDecision decide_mps(const MpsFacts& facts);
// CUDA_MPS_PINNED_DEVICE_MEM_LIMIT for a task: "0=81920M", its part of the slices' sum.
std::string mps_memory_limit(const TaskSlices& task);

}  // namespace mso
