// Reads the node's NVMe drives from sysfs.
#pragma once

#include <filesystem>

#include "node/node_facts.h"

namespace mso {

// <root>/sys/class/nvme: controllers, and the namespaces behind them. What cannot be read is left empty.
NvmeFacts read_nvme(const std::filesystem::path& root = "/");

}  // namespace mso
