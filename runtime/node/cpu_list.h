// A set of CPUs as Linux writes it: "0-3,8". Used by cpusets, sysfs, and the MSO_CPUS_… variables.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

inline constexpr int kMaxCpus = 8192;  // CPU numbers are below this; the kernel's own limit on x86

using CpuSet = std::vector<int>;  // sorted, no number twice

// "0-3,8" or "" (empty set); blanks and a newline at the end are accepted. None: anything else, numbers from kMaxCpus
// on, descending ranges, more than 64 KiB of text. Overlapping ranges are merged.
std::optional<CpuSet> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const CpuSet& cpus);

CpuSet cpu_union(const CpuSet& a, const CpuSet& b);
CpuSet cpu_intersection(const CpuSet& a, const CpuSet& b);
CpuSet cpu_difference(const CpuSet& a, const CpuSet& b);
bool cpu_subset(const CpuSet& part, const CpuSet& whole);

// The CPUs the calling thread may run on; empty where the kernel does not say.
CpuSet current_cpus();
int usable_cores();  // how many these are, 1 at least
// False, with errno set, where the kernel refuses.
bool set_current_cpus(const CpuSet& cpus);

}  // namespace mso
