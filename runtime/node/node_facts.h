// What a node is made of: CPUs, GPUs, NVMe drives and where they sit. Read once by mso-node-facts (hwloc and NVML take
// tens of milliseconds), kept as a small text file that plugin, runtime and `mso check` read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/cpu_list.h"

namespace mso {

struct CpuFact {
  int cpu = 0;
  int core = 0;   // number of the core, unique on the node; SMT siblings share it
  int numa = 0;
  bool operator==(const CpuFact&) const = default;
};

struct MigFact {
  std::string uuid;  // "MIG-…"
  uint64_t memory_bytes = 0;
  bool operator==(const MigFact&) const = default;
};
struct GpuFact {
  int index = 0;     // as NVML counts (PCI order)
  int minor = -1;    // N of /dev/nvidiaN; -1: unknown
  std::string uuid;  // "GPU-…"
  std::string name;
  std::string pci;   // "0000:17:00.0"
  int numa = -1;     // -1: unknown
  uint64_t memory_bytes = 0;
  std::vector<MigFact> mig;  // empty: MIG is off
  bool operator==(const GpuFact&) const = default;
};

struct NvmeController {
  std::string name;       // "nvme0"
  std::string model, serial;
  std::string transport;  // pcie | tcp | rdma | fc | loop
  std::string address;    // PCI address, or "traddr=…,trsvcid=…"
  std::string nqn;        // of the subsystem
  int numa = -1;          // -1: unknown, or a fabric
  int lanes = 0;          // PCIe lanes in use; 0: unknown, or a fabric
  double gigatransfers = 0;  // per second and lane
  bool operator==(const NvmeController&) const = default;
};
struct NvmeNamespace {
  std::string name;   // block device "nvme0n1"
  int nsid = 0;
  std::string uuid, nguid, eui64;  // lower case; empty: none, or all zeros
  uint64_t bytes = 0;
  std::vector<std::string> paths;  // controllers that lead to it
  bool operator==(const NvmeNamespace&) const = default;
};
struct NvmeFacts {
  std::vector<NvmeController> controllers;   // by number
  std::vector<NvmeNamespace> namespaces;     // by name
  bool operator==(const NvmeFacts&) const = default;
};

struct NodeFacts {
  std::string host;
  std::string boot_id;  // the same for all "nodes" that are one running kernel
  std::vector<CpuFact> cpus;  // by CPU number
  std::vector<GpuFact> gpus;
  NvmeFacts nvme;
  uint64_t l3_bytes = 0;      // of one L3 cache, the largest; 0: unknown
  uint64_t memory_bytes = 0;
  std::string gpu_note;       // why there are no GPUs: "NVML is not installed"; empty: nothing to say
  bool operator==(const NodeFacts&) const = default;
};

inline constexpr const char* kNodeFactsFile = "/run/mso/node-facts";

// Text form, one fact a line ("cpu 3 core=1 numa=0"), first line "mso-node-facts 1". parse: none where it is damaged, of
// another version, or larger than 4 MiB.
std::string format_node_facts(const NodeFacts& facts);
std::optional<NodeFacts> parse_node_facts(std::string_view text);

// The kept file where it is whole and of this boot, and owned by root or this user; else none.
std::optional<NodeFacts> load_node_facts(const std::filesystem::path& file = kNodeFactsFile);

// Of the running kernel; empty where /proc does not say.
std::string current_boot_id();

// The CPUs of a NUMA node.
CpuSet cpus_of_numa(const std::vector<CpuFact>& cpus, int numa);
// "node 0: 0-15,32-47; node 1: …"
std::string describe_numa(const std::vector<CpuFact>& cpus);

}  // namespace mso
