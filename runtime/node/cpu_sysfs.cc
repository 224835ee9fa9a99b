#include "node/cpu_sysfs.h"

#include <map>
#include <string>

#include "node/first_line.h"

namespace mso {

namespace fs = std::filesystem;

std::vector<CpuFact> read_cpus_sysfs(const fs::path& root) {
  const fs::path system = root / "sys/devices/system";
  std::vector<CpuFact> cpus;
  std::map<int, int> numa_of;
  for (int node : parse_cpu_list(first_line(system / "node/online")).value_or(CpuSet{}))
    for (int cpu : parse_cpu_list(first_line(system / "node" / ("node" + std::to_string(node)) / "cpulist")).value_or(CpuSet{}))
      numa_of[cpu] = node;
  for (int cpu : parse_cpu_list(first_line(system / "cpu/online")).value_or(CpuSet{})) {
    const fs::path topology = system / "cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    std::string siblings = first_line(topology / "core_cpus_list");
    if (siblings.empty()) siblings = first_line(topology / "thread_siblings_list");  // before Linux 5.4
    const CpuSet threads = parse_cpu_list(siblings).value_or(CpuSet{});
    cpus.push_back({cpu, threads.empty() ? cpu : threads.front(), numa_of.contains(cpu) ? numa_of[cpu] : 0});
  }
  // Cores numbered in the order of their first CPU.
  std::map<int, int> number;
  for (CpuFact& fact : cpus) fact.core = number.try_emplace(fact.core, static_cast<int>(number.size())).first->second;
  return cpus;
}

}  // namespace mso
