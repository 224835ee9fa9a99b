// How srun knows that the plugin ran on every node of a step: each node sends a line to a port of srun's, in
// the task's process and as its user. srun reads them when the step is over; a node that sent none had no
// plugin. No thread: the lines wait in the kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace mso {

struct NodeOfStep {
  uint32_t job = 0, node_index = 0;
  std::string name;  // Slurm's, for messages
  auto operator<=>(const NodeOfStep&) const = default;
};

struct Confirmations {
  std::set<NodeOfStep> nodes;
  // Connections that brought no confirmation of this step: anybody who reaches the port can make them, and so
  // many that a node's does not get through. Where there were any, a node that is missing proves nothing.
  size_t strangers = 0;
};

class ConfirmationBox {
 public:
  // Listens on a port of `ports` ({0, 0}: any). None where that cannot be had.
  static std::optional<ConfirmationBox> open(std::pair<uint16_t, uint16_t> ports);
  // For the nodes: "PORT:SECRET".
  std::string ticket() const;
  // All that has arrived so far; takes no longer than `deadline_s` in all, whatever peers do. Stops early where
  // `expected` have come.
  Confirmations collect(size_t expected, double deadline_s);

 private:
  FileDescriptor socket_;
  uint16_t port_ = 0;
  std::string secret_;
};

// In a task: tells srun at `address` (SLURM_LAUNCH_NODE_IPADDR). False where it could not within
// `deadline_s`.
bool send_confirmation(const std::string& address, std::string_view ticket, const NodeOfStep& node,
                       double deadline_s);

// The ports srun may use, "SrunPortRange=60001-63000" in slurm.conf's text; {0, 0}: not limited.
std::pair<uint16_t, uint16_t> srun_ports(std::string_view slurm_conf);
// "n[1-3,07]" → n1 n2 n3 n07; what is not of that form is returned as it is. At most 100000 names.
std::vector<std::string> expand_host_list(std::string_view list);

}  // namespace mso
