// Limits of a job on NVMe drives by cgroup v2: io.max on the drives it holds lanes of, io.weight. What to write is decided
// by pure functions; where, by looking at the task's own cgroup.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "node/nvme_lanes.h"

namespace mso {

struct IoLimit {
  std::string device;       // "259:0"
  uint64_t bytes_per_s = 0;  // reading, and as much writing
  bool operator==(const IoLimit&) const = default;
};
// A line of io.max: "259:0 rbps=N wbps=N".
std::string format_io_limit(const IoLimit& limit);

// For each block device of a drive in `holds`: lanes held there × bytes_per_lane. `device_number` of "nvme0n1" is "259:0",
// or empty where the kernel shows no such device (then it is left out). A namespace over several held drives gets their sum.
std::vector<IoLimit> plan_io_limits(const NvmeFacts& drives, const std::vector<NvmeHold>& holds, uint64_t bytes_per_lane,
                                    const std::function<std::string(const std::string&)>& device_number);
// Of /sys/block; empty: no such device.
std::string device_number_of(const std::string& block_device, const std::filesystem::path& root = "/");

// The folder job_ID on the way from a task's cgroup up to `mount`; none: the task is in no cgroup of that job.
std::optional<std::filesystem::path> job_cgroup_above(const std::filesystem::path& task, uint32_t job,
                                                      const std::filesystem::path& mount);

// Sets the limits, and the weight (0: left alone), of a job's cgroup; its neighbours get the io controller with it, without limits. Error:
// io is not delegated to Slurm's cgroup, or the kernel refuses a value.
void set_job_io(const std::filesystem::path& job_cgroup, const std::vector<IoLimit>& limits, int weight);

}  // namespace mso
