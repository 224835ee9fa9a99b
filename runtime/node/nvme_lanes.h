// NVMe lanes by modality: which drives of the node feed which kind of data, and which drives of a job's nodes are the same
// by mistake. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/node_facts.h"

namespace mso {

// "image:1x4,video:2x8": drives x PCIe lanes of each.
struct NvmeRequest {
  std::string modality;  // image | video
  int devices = 0, lanes = 0;
  bool operator==(const NvmeRequest&) const = default;
};
std::optional<std::vector<NvmeRequest>> parse_nvme_request(std::string_view text, std::vector<std::string>& mistakes);
std::string format_nvme_request(const std::vector<NvmeRequest>& request);
// All lanes of it together.
int lanes_of(const std::vector<NvmeRequest>& request);

// Lanes a job holds on a drive.
struct NvmeHold {
  std::string controller;  // "nvme0"
  std::string modality;
  int lanes = 0;
  bool operator==(const NvmeHold&) const = default;
};
// "nvme0:image:4,nvme1:video:8"; kept with the job's state, and given to the step as MSO_NVME.
std::string format_nvme_holds(const std::vector<NvmeHold>& holds);
std::optional<std::vector<NvmeHold>> parse_nvme_holds(std::string_view text);

struct NvmePlan {
  std::vector<NvmeHold> holds;
  std::vector<std::string> mistakes;  // what was asked and what there is; empty: reserved as asked
};
// PCIe drives only; lanes of a drive not held by others, near `numa` first (-1: no wish), then fullest use of a drive
// (least lanes left over), then the lowest number. A modality's drives are distinct. All or nothing.
NvmePlan plan_nvme_lanes(const NvmeFacts& drives, const std::vector<NvmeHold>& held_by_others,
                         const std::vector<NvmeRequest>& request, int numa = -1);
// NUMA node of the drives a modality holds: that of the first; -1 unknown.
int numa_of_holds(const NvmeFacts& drives, const std::vector<NvmeHold>& holds, std::string_view modality);

// The NVMe part of a node's facts, as nodes exchange it (the runtime gathers it over all ranks at start).
struct NodeDrives {
  std::string node, boot_id;
  NvmeFacts nvme;
};
std::string format_node_drives(const NodeDrives& drives);
std::optional<NodeDrives> parse_node_drives(std::string_view text);

struct DriveReport {
  std::vector<std::string> duplicates;  // one sentence each, naming nodes, drives and the identifier
  std::vector<std::string> multipath;   // namespaces with several paths: legitimate
  std::vector<std::string> shared;      // the same fabric namespace on several nodes: legitimate
};
// Two namespaces with the same UUID, NGUID or EUI64 are duplicates, unless they are one: the same (NQN, namespace id), seen
// over several paths of a node, or over fabrics from several nodes. PCIe drives with one (model, serial), or one NQN, in two
// machines are duplicates too. Nodes with one boot id are one machine.
DriveReport compare_drives(const std::vector<NodeDrives>& nodes);

}  // namespace mso
