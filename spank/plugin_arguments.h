// The admin's arguments in plugstack.conf (spank_mso(8)): parsing. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "node/job_request.h"

namespace mso {

struct PluginArguments {
  std::filesystem::path run_dir = "/run/mso";                  // run=
  std::filesystem::path profiles_dir = "/etc/mso/profiles.d";  // profiles=
  std::filesystem::path program;                               // program=: mso, for --mso-config
  std::filesystem::path squeue;                                // squeue=: asked whether a job still exists
  std::filesystem::path node_facts;               // node-facts=: program that reads the node's hardware
  uint64_t snapshot_default = uint64_t{1} << 30;  // snapshot-default=: most that "auto" takes
  uint64_t snapshot_max = kMaxSnapshotBytes;      // snapshot-max=: of one job on a node
  uint64_t snapshot_node_max = 0;     // snapshot-node-max=SIZE: of all jobs on a node; 0: by percent
  int snapshot_node_percent = 50;     // snapshot-node-max=N%: of the node's memory
  int nvme_max = 0;                   // nvme-max=LANES: of one job on a node; 0: no limit
  double lock_timeout_s = 10;         // lock-timeout=
  bool kill_orphans = true;           // orphans=kill|leave
  bool confirm = true;                // confirm=yes|no: srun makes sure that each node has the plugin
  bool allow_faults = false;          // faults=allow: honour MSO_SPANK_FAIL (tests)
  bool decoder_cgroups = false;       // decoder-cgroups=yes|no
  bool mps = false;                   // mps=yes|no
  std::string io_priority;            // io-priority=be:0…7
  std::optional<int> decoder_nice;    // decoder-nice=no|-20…-1: how low tasks with decoder CPUs may set nice; none: as Slurm starts them
  uint64_t nvme_lane_rate = 0;        // nvme-lane-rate=SIZE: bytes a second of a reserved lane; 0: no limit
  int io_weight = 0;                  // io-weight=1…10000; 0: left alone
  RequestSource defaults;             // snapshot= gpu-slices= cpus= nvme= check=: where a job says nothing
  std::vector<std::string> mistakes;  // sentences; the rest is read all the same
};

// Where configure put things; set by the build.
struct InstalledPaths {
  std::filesystem::path program, squeue, node_facts;
};

PluginArguments parse_plugin_arguments(const std::vector<std::string>& arguments,
                                       const InstalledPaths& installed);

}  // namespace mso
