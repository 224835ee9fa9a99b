// Everything the checkpoint manager and recovery need to know about the run. Plain data, filled from the
// configuration by the trainer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mso {

struct CheckpointSettings {
  std::filesystem::path run_dir;                   // train.run_dir, on shared storage
  std::filesystem::path level0_path = "/dev/shm";  // ecm.level0_path, on this node's RAM disk
  std::string run_id;                              // RunAttempt::run_id()
  std::vector<std::string> earlier_run_ids;        // RunAttempt::earlier_run_ids(): L1 and L2 of these are this run's
  int64_t attempt = 0;                             // RunAttempt::number()
  std::string node;                                // World::node(): whose RAM disk level0_path is

  // Seconds between snapshots of a level; 0: at every step boundary; negative: level off.
  double level0_interval_s = 0.5;
  double level1_interval_s = 30;
  double level2_interval_s = 300;

  bool level0_partner = true;  // ecm.level0_partner auto (a copy on another node where there is one) or off
  bool level1_optimizer =
      true;      // ecm.level1_optimizer; false: L1 holds the weights only, not enough to resume exactly
  int keep = 2;  // ecm.keep: states kept of L1 and of L2, at least 1
  double max_write_bandwidth =
      0;                  // ecm.max_write_bandwidth, bytes a second of the whole job at L1/L2; 0: no limit
  double retry_s = 5;     // pause after a level's first failure; doubled with each, up to 5 minutes
  double timeout_s = 60;  // parallel.timeout_s: longest silence of a peer

  // Whether a state on shared storage with this id is the run's.
  bool owns(const std::string& id) const {
    return id == run_id || std::find(earlier_run_ids.begin(), earlier_run_ids.end(), id) != earlier_run_ids.end();
  }
};

}  // namespace mso
