// Reads the machine's CPUs from sysfs: what hwloc would say, as far as CPU sets need it.
#pragma once

#include <filesystem>
#include <vector>

#include "node/node_facts.h"

namespace mso {

// Every CPU that is online, those outside the caller's cpuset too, from <root>/sys/devices/system; empty where there is none.
std::vector<CpuFact> read_cpus_sysfs(const std::filesystem::path& root = "/");

}  // namespace mso
