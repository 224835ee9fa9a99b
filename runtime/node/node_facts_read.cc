#include "node/node_facts_read.h"

#include <config.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <tuple>

#ifdef MSO_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "base/error.h"
#include "node/first_line.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

#ifdef MSO_HAVE_HWLOC
class Topology {
 public:
  explicit Topology(const std::string& synthetic) {
    int failed = hwloc_topology_init(&topology_);
    if (!failed && !synthetic.empty()) {
      const bool xml = synthetic.ends_with(".xml");
      failed = xml ? hwloc_topology_set_xml(topology_, synthetic.c_str())
                   : hwloc_topology_set_synthetic(topology_, synthetic.c_str());
      if (failed) {
        hwloc_topology_destroy(topology_);
        throw Error("not a topology", synthetic, "a synthetic description of hwloc, or an .xml of lstopo", ExitCode::kBadUsage);
      }
    }
    // All CPUs, not those of slurmd's own cpuset only; no devices, which would cost most of the time.
    if (!failed) failed = hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (!failed) failed = hwloc_topology_load(topology_);
    if (failed) throw Error("hwloc cannot read this machine", "hwloc_topology_load", "");
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

int first_numa(hwloc_topology_t topology, hwloc_obj_t pu) {
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
    if (node->cpuset && hwloc_bitmap_isset(node->cpuset, pu->os_index)) return static_cast<int>(node->os_index);
  return 0;
}

std::vector<CpuFact> cpus_of(const Topology& topology) {
  std::vector<CpuFact> cpus;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, pu));) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, pu);
    // Logical: OS numbers of cores repeat from socket to socket.
    cpus.push_back({static_cast<int>(pu->os_index), static_cast<int>(core ? core->logical_index : pu->logical_index),
                    first_numa(topology.get(), pu)});
  }
  std::ranges::sort(cpus, {}, &CpuFact::cpu);
  return cpus;
}
#endif

uint64_t size_text(const std::string& text) {  // "32768K"
  std::istringstream in(text);
  uint64_t value = 0;
  char unit = 0;
  in >> value >> unit;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

uint64_t largest_l3(const fs::path& root) {
  uint64_t largest = 0;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    const fs::path cache = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cache";
    std::error_code failed;
    if (!fs::exists(cache, failed)) {
      if (cpu > 0) break;
      continue;
    }
    for (int i = 0; i < 8; ++i) {
      const fs::path index = cache / ("index" + std::to_string(i));
      if (first_line(index / "level") == "3") largest = std::max(largest, size_text(first_line(index / "size")));
    }
  }
  return largest;
}

}  // namespace

std::vector<CpuFact> read_cpus(const std::string& synthetic) {
#ifdef MSO_HAVE_HWLOC
  return cpus_of(Topology(synthetic));
#else
  if (!synthetic.empty()) throw Error("no synthetic topologies", "built without hwloc", "configure --with-hwloc");
  return read_cpus_sysfs();
#endif
}

NodeFacts read_node_facts(const fs::path& root) {
  NodeFacts facts;
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) == 0) facts.host = host.data();
  facts.boot_id = first_line(root / "proc/sys/kernel/random/boot_id");
  facts.cpus = root == "/" ? read_cpus() : read_cpus_sysfs(root);
  facts.gpus = read_gpus(&facts.gpu_note, root);
  facts.nvme = read_nvme(root);
  facts.l3_bytes = largest_l3(root);
  struct sysinfo memory = {};
  if (::sysinfo(&memory) == 0) facts.memory_bytes = static_cast<uint64_t>(memory.totalram) * memory.mem_unit;
  return facts;
}

}  // namespace mso
