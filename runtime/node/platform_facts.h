// What a node's hardware can do, measured for `mso check` and at the start of training: PCIe lanes, memory channels, caches,
// NVLink, InfiniBand. Read when asked; the plugin needs none of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mso {

struct InfinibandPort {
  std::string name;     // "mlx5_0/1"
  double gigabits = 0;  // per second
  bool active = false;
  bool operator==(const InfinibandPort&) const = default;
};

struct GpuLinks {
  std::string pci;                 // of the GPU, as sysfs writes it
  int active = 0;                  // NVLinks that are up
  bool to_switch = false;          // some of them lead to an NVSwitch, and so to every other GPU there
  std::vector<std::string> peers;  // PCI addresses of GPUs at the other ends
  bool operator==(const GpuLinks&) const = default;
};

struct PlatformFacts {
  int pcie_lanes = 0;                     // widths of all root ports together
  std::vector<std::string> narrow_links;  // "nvme0 (0000:01:00.0) x2 of x4": devices that run below their width
  int memory_channels = 0;                // with memory in them, of all sockets
  std::string memory_source;              // "EDAC", "DMI"; empty: the kernel does not say
  uint64_t l3_bytes = 0;                  // all L3 caches of a socket, the socket with the least
  std::vector<InfinibandPort> infiniband;
  std::vector<GpuLinks> gpus;
  uint64_t shm_free_bytes = 0;            // of /dev/shm
};

PlatformFacts read_platform_facts(const std::filesystem::path& root = "/", const std::string& nvml_library = "");

// Memory channels in the system's DMI table: sockets' modules with memory, by the letter or number that names the channel in
// their locators ("CPU1_DIMM_A1", "P0 CHANNEL A"); without such names each module counts. 0: no table, or not readable.
int channels_of_dmi(const std::string& table);

}  // namespace mso
