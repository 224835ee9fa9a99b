// What must be equal on all nodes of a run (driver, CUDA, NCCL, kernel, program), and what is not. Comparing is pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mso {

struct NodeVersions {
  std::string node;
  std::vector<std::pair<std::string, std::string>> values;  // "GPU driver", "550.54.15"; empty: the node has none
};

// One line a value, for the exchange between ranks; unprintable letters become '?'.
std::string format_node_versions(const NodeVersions& versions);
NodeVersions parse_node_versions(std::string_view text);

// One sentence for each name whose values differ: "GPU driver: 550.54.15 on n1, n2; 535.129.03 on n3". The value that most
// nodes have comes first.
std::vector<std::string> find_drift(const std::vector<NodeVersions>& nodes);

// Of this node and process: GPU driver, CUDA and NCCL as installed there (empty without GPUs), kernel, a hash of the program's
// file. Linked with libmso_node_read.
NodeVersions read_node_versions(const std::string& node);

}  // namespace mso
