#include "node/gpu_slices.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "node/request_text.h"

namespace mso {

namespace {

constexpr uint64_t kMinSlice = uint64_t{1} << 20, kMaxSlice = uint64_t{16} << 40;

SliceDevice device_of(const GpuFact& gpu) {
  return {gpu.uuid, "GPU " + std::to_string(gpu.index) + " (" + gpu.name + ")", gpu.memory_bytes, gpu.numa};
}

void add_devices(std::vector<SliceDevice>& devices, const GpuFact& gpu) {
  if (gpu.mig.empty()) {
    devices.push_back(device_of(gpu));
    return;
  }
  for (size_t i = 0; i < gpu.mig.size(); ++i)
    devices.push_back({gpu.mig[i].uuid, "MIG instance " + std::to_string(i) + " of GPU " + std::to_string(gpu.index),
                       gpu.mig[i].memory_bytes, gpu.numa});
}

}  // namespace

const std::vector<std::string>& slice_names() {
  static const std::vector<std::string> names = {"vision", "audio", "projector", "llm", "cross", "experts", "shared"};
  return names;
}

std::optional<std::vector<Slice>> parse_slices(std::string_view text, std::vector<std::string>& mistakes) {
  const auto items = parse_request_items(text, "GPU slice", slice_names(), "vision:24G,llm:32G,shared:24G", mistakes);
  if (!items) return std::nullopt;
  std::vector<Slice> slices;
  bool good = true;
  for (const RequestItem& item : *items) {
    const std::optional<int64_t> bytes = item.value.size() <= 24 ? parse_bytes(item.value) : std::nullopt;
    if (!bytes || static_cast<uint64_t>(*bytes) < kMinSlice || static_cast<uint64_t>(*bytes) > kMaxSlice) {
      mistakes.push_back(item.name + ": \"" + shown(item.value) + "\" is not a size from 1M to 16T");
      good = false;
      continue;
    }
    slices.push_back({item.name, static_cast<uint64_t>(*bytes)});
  }
  if (!good) return std::nullopt;
  return slices;
}

std::string format_slices(const std::vector<Slice>& slices) {
  std::string text;
  for (const Slice& slice : slices) text += (text.empty() ? "" : ",") + slice.name + ":" + std::to_string(slice.bytes);
  return text;
}

uint64_t slices_total(const std::vector<Slice>& slices) {
  uint64_t total = 0;
  for (const Slice& slice : slices) total += slice.bytes;
  return total;
}

std::vector<SliceDevice> slice_devices(const std::vector<GpuFact>& gpus, const std::vector<int>& indices) {
  std::vector<SliceDevice> devices;
  for (int index : indices)
    for (const GpuFact& gpu : gpus)
      if (gpu.index == index) add_devices(devices, gpu);
  return devices;
}

std::vector<SliceDevice> visible_devices(const std::vector<GpuFact>& gpus, std::string_view visible,
                                         std::vector<std::string>& mistakes) {
  std::vector<SliceDevice> devices;
  for (size_t at = 0; at < visible.size();) {
    const size_t end = std::min(visible.find(',', at), visible.size());
    const std::string_view entry = visible.substr(at, end - at);
    at = end + 1;
    const size_t before = devices.size();
    const std::optional<int64_t> index = parse_small_number(entry, 0, 4095);
    for (const GpuFact& gpu : gpus) {
      if (index ? gpu.index == *index : gpu.uuid == entry) add_devices(devices, gpu);
      for (const MigFact& instance : gpu.mig)
        if (instance.uuid == entry)
          devices.push_back({instance.uuid, "MIG instance of GPU " + std::to_string(gpu.index), instance.memory_bytes, gpu.numa});
    }
    if (devices.size() == before) mistakes.push_back("no GPU \"" + shown(entry) + "\" on this node");
  }
  return devices;
}

std::string format_task_slices(const TaskSlices& task) {
  return "device=" + task.device + ";table=" + std::to_string(task.table) + ";sharers=" + std::to_string(task.sharers) +
         ";slices=" + format_slices(task.slices);
}

std::optional<TaskSlices> parse_task_slices(std::string_view text) {
  if (text.size() > kMaxRequestText) return std::nullopt;
  TaskSlices task;
  int seen = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "device") {
      task.device = value;
      seen |= 1;
    } else if (key == "table" || key == "sharers") {
      const std::optional<int64_t> number = parse_small_number(value, 0, 4096);
      if (!number) return std::nullopt;
      (key == "table" ? task.table : task.sharers) = static_cast<int>(*number);
      seen |= key == "table" ? 2 : 4;
    } else if (key == "slices") {
      std::vector<std::string> mistakes;
      const auto slices = parse_slices(value, mistakes);
      if (!slices) return std::nullopt;
      task.slices = *slices;
      seen |= 8;
    } else {
      return std::nullopt;
    }
  }
  if (seen != 15 || task.sharers < 1 || task.device.empty()) return std::nullopt;
  return task;
}

SlicePlan plan_slices(const std::vector<Slice>& slices, const std::vector<SliceDevice>& devices, int tasks,
                      uint64_t host_memory_bytes, const std::vector<int>& device_of_task) {
  if (tasks < 1) throw Error("no GPU slices", "no task on this node");
  SlicePlan plan;
  const uint64_t total = slices_total(slices);
  auto does_not_fit = [&](const std::string& where, uint64_t sum, uint64_t room) {
    plan.mistakes.push_back("slices add up to " + format_bytes(static_cast<double>(sum)) + ", " + where + " has " +
                            format_bytes(static_cast<double>(room)));
  };
  if (devices.empty()) {
    for (int t = 0; t < tasks; ++t) plan.tasks.push_back({"host", t, 1, slices});
    // Not a product: it could overflow.
    if (host_memory_bytes > 0 && total > host_memory_bytes / static_cast<uint64_t>(tasks))
      does_not_fit("a task's share of the job's memory on this node", total, host_memory_bytes / static_cast<uint64_t>(tasks));
    return plan;
  }
  std::vector<int> sharers(devices.size(), 0);
  for (int t = 0; t < tasks; ++t) {
    const size_t k = static_cast<size_t>(t);
    const int device = k < device_of_task.size() ? device_of_task[k] : t % static_cast<int>(devices.size());
    ++sharers.at(static_cast<size_t>(device));
    plan.tasks.push_back({devices[static_cast<size_t>(device)].id, device, 0, slices});
  }
  for (TaskSlices& task : plan.tasks) task.sharers = sharers[static_cast<size_t>(task.table)];
  for (size_t d = 0; d < devices.size(); ++d)
    if (sharers[d] > 0 && total > devices[d].memory_bytes) does_not_fit(devices[d].label, total, devices[d].memory_bytes);
  return plan;
}

MpsDecision decide_mps(const MpsFacts& facts) {
  if (!facts.admin_wants) return {false, "not turned on by the admin"};
  if (facts.gres_mps) return {false, "gres/mps manages MPS for this job"};
  if (facts.mig) return {false, "MIG instances are limited by the hardware"};
  if (!facts.daemon_running) return {false, "no MPS daemon on this node"};
  return {true, "MPS daemon of the node"};
}

std::string mps_memory_limit(const TaskSlices& task) {
  const uint64_t mib = slices_total(task.slices) / static_cast<uint64_t>(std::max(task.sharers, 1)) >> 20;
  return "0=" + std::to_string(std::max<uint64_t>(mib, 1)) + "M";
}

}  // namespace mso
