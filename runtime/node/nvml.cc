// GPUs by NVML, which is opened at run time: a machine without the driver is no error. The few functions used are declared
// here by their documented binary interface.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>

#include "node/node_facts_read.h"

namespace mso {

namespace {

using Device = void*;
constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr unsigned int kMaxLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr int kSwitch = 2;              // NVML_NVLINK_DEVICE_TYPE_SWITCH

struct PciInfo {  // nvmlPciInfo_t, version 3
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct Nvml {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*device_count)(unsigned int*) = nullptr;
  int (*device_by_index)(unsigned int, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned int) = nullptr;
  int (*name)(Device, char*, unsigned int) = nullptr;
  int (*minor)(Device, unsigned int*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  // Of newer drivers; null where there is none.
  int (*mig_mode)(Device, unsigned int*, unsigned int*) = nullptr;
  int (*mig_count)(Device, unsigned int*) = nullptr;
  int (*mig_by_index)(Device, unsigned int, Device*) = nullptr;
  int (*link_state)(Device, unsigned int, unsigned int*) = nullptr;
  int (*link_peer)(Device, unsigned int, PciInfo*) = nullptr;
  int (*link_peer_kind)(Device, unsigned int, int*) = nullptr;
  int (*driver_version)(char*, unsigned int) = nullptr;
  int (*cuda_version)(int*) = nullptr;

  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }
  // Empty, or why not.
  std::string open(const std::string& file) {
    library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return "no GPU driver (" + file + " is not installed)";
    const bool complete = find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") && find(error_string, "nvmlErrorString") &&
                          find(device_count, "nvmlDeviceGetCount_v2") && find(device_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
                          find(uuid, "nvmlDeviceGetUUID") && find(name, "nvmlDeviceGetName") &&
                          find(minor, "nvmlDeviceGetMinorNumber") && find(pci, "nvmlDeviceGetPciInfo_v3") &&
                          find(memory, "nvmlDeviceGetMemoryInfo");
    if (!complete) return file + " lacks functions of NVML";
    find(mig_mode, "nvmlDeviceGetMigMode");
    find(mig_count, "nvmlDeviceGetMaxMigDeviceCount");
    find(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
    find(link_state, "nvmlDeviceGetNvLinkState");
    find(link_peer, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(link_peer_kind, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(driver_version, "nvmlSystemGetDriverVersion");
    find(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    const int failed = init();
    return failed ? std::string("NVML does not start: ") + error_string(failed) : "";
  }
};

std::string text_of(int (*function)(Device, char*, unsigned int), Device device) {
  std::array<char, 96> buffer = {};
  if (function(device, buffer.data(), buffer.size() - 1) != 0) return "";
  return buffer.data();
}

uint64_t memory_of(const Nvml& nvml, Device device) {
  Memory memory = {};
  return nvml.memory(device, &memory) == 0 ? memory.total : 0;
}

// NVML writes "00000000:17:00.0", sysfs has "0000:17:00.0".
std::string sysfs_address(std::string id) {
  if (id.size() > 12 && id.find(':') == 8) id.erase(0, id.size() - 12);
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

std::vector<MigFact> mig_instances(const Nvml& nvml, Device device) {
  std::vector<MigFact> instances;
  unsigned int on = 0, pending = 0, count = 0;
  if (!nvml.mig_mode || !nvml.mig_count || !nvml.mig_by_index || nvml.mig_mode(device, &on, &pending) != 0 || on == 0 ||
      nvml.mig_count(device, &count) != 0)
    return instances;
  for (unsigned int i = 0; i < count; ++i) {
    Device instance = nullptr;
    if (nvml.mig_by_index(device, i, &instance) != 0) continue;  // not created
    instances.push_back({text_of(nvml.uuid, instance), memory_of(nvml, instance)});
  }
  return instances;
}

}  // namespace

std::vector<GpuFact> read_gpus(std::string* note, const std::filesystem::path& root, const std::string& library) {
  Nvml nvml;
  std::vector<GpuFact> gpus;
  const std::string problem = nvml.open(library.empty() ? kLibrary : library);
  if (note) *note = problem;
  if (!problem.empty()) return gpus;  // the library, where opened, stays: unloading drivers' libraries is asking for trouble
  unsigned int count = 0;
  nvml.device_count(&count);
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (const int failed = nvml.device_by_index(i, &device); failed != 0) {
      if (note) *note = "GPU " + std::to_string(i) + ": " + nvml.error_string(failed);
      continue;
    }
    GpuFact gpu;
    gpu.index = static_cast<int>(i);
    unsigned int minor = 0;
    if (nvml.minor(device, &minor) == 0) gpu.minor = static_cast<int>(minor);
    gpu.uuid = text_of(nvml.uuid, device);
    gpu.name = text_of(nvml.name, device);
    PciInfo pci = {};
    if (nvml.pci(device, &pci) == 0) gpu.pci = sysfs_address(pci.bus_id);
    gpu.memory_bytes = memory_of(nvml, device);
    std::ifstream numa(root / "sys/bus/pci/devices" / gpu.pci / "numa_node");
    if (!(numa >> gpu.numa)) gpu.numa = -1;
    gpu.mig = mig_instances(nvml, device);
    gpus.push_back(std::move(gpu));
  }
  nvml.shutdown();
  return gpus;
}

std::vector<GpuLinks> read_gpu_links(const std::string& library) {
  Nvml nvml;
  std::vector<GpuLinks> gpus;
  if (!nvml.open(library.empty() ? kLibrary : library).empty()) return gpus;
  unsigned int count = 0;
  nvml.device_count(&count);
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.device_by_index(i, &device) != 0) continue;
    GpuLinks gpu;
    PciInfo pci = {};
    if (nvml.pci(device, &pci) == 0) gpu.pci = sysfs_address(pci.bus_id);
    for (unsigned int link = 0; nvml.link_state && link < kMaxLinks; ++link) {
      unsigned int up = 0;
      if (nvml.link_state(device, link, &up) != 0 || up == 0) continue;
      ++gpu.active;
      int kind = 0;
      if (nvml.link_peer_kind && nvml.link_peer_kind(device, link, &kind) == 0 && kind == kSwitch) gpu.to_switch = true;
      PciInfo peer = {};
      if (nvml.link_peer && nvml.link_peer(device, link, &peer) == 0)
        if (const std::string address = sysfs_address(peer.bus_id); std::ranges::find(gpu.peers, address) == gpu.peers.end())
          gpu.peers.push_back(address);
    }
    gpus.push_back(std::move(gpu));
  }
  nvml.shutdown();
  return gpus;
}

GpuVersions read_gpu_versions(const std::string& library) {
  Nvml nvml;
  GpuVersions versions;
  if (!nvml.open(library.empty() ? kLibrary : library).empty()) return versions;
  std::array<char, 96> text = {};
  if (nvml.driver_version && nvml.driver_version(text.data(), text.size() - 1) == 0) versions.driver = text.data();
  int number = 0;  // 12040: 12.4
  if (nvml.cuda_version && nvml.cuda_version(&number) == 0)
    versions.cuda = std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  nvml.shutdown();
  return versions;
}

}  // namespace mso
