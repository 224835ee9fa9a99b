// Reads the facts of this node from hwloc, NVML and sysfs. Only mso-node-facts and `mso check` link this; the plugin reads
// the file they keep.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "node/cpu_sysfs.h"
#include "node/node_facts.h"
#include "node/nvme_sysfs.h"
#include "node/platform_facts.h"

namespace mso {

// Every CPU of the machine, those outside the caller's cpuset too. `synthetic`: an hwloc description such as
// "pack:2 numa:1 core:4 pu:2", or an .xml file of lstopo, instead of this machine. Built without hwloc: from sysfs.
std::vector<CpuFact> read_cpus(const std::string& synthetic = "");

// NVML is opened at run time (libnvidia-ml.so.1, or `library`); without it no GPUs, and `*note` says why.
std::vector<GpuFact> read_gpus(std::string* note, const std::filesystem::path& root = "/", const std::string& library = "");

// NVLinks of each GPU, in NVML's order; none without NVML.
std::vector<GpuLinks> read_gpu_links(const std::string& library = "");
// Of the driver, and of CUDA as it supports it ("550.54.15", "12.4"); empty without NVML.
struct GpuVersions {
  std::string driver, cuda;
};
GpuVersions read_gpu_versions(const std::string& library = "");

// All of it.
NodeFacts read_node_facts(const std::filesystem::path& root = "/");

}  // namespace mso
