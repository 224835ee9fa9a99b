// The folder of a run: its identity, the configuration it runs with, and which process is which rank.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/world.h"

namespace mso {

struct RunDirectory {
  std::filesystem::path path;
  bool existed = false;  // a run was here before: it is resumed
};

// Collective, before RunAttempt::begin(). Looks for a run in the folder; with `fresh` an old one is moved aside to
// "PATH.before-YYYYMMDD-HHMMSS". Error (kBadUsage, on all ranks) for a folder that holds something else than a run.
RunDirectory open_run_directory(World& world, const std::filesystem::path& path, bool fresh, double timeout_s);

// Prints what differs; Error (kBadUsage) naming every key whose new value is not safe to go on with.
void refuse_unsafe_changes(const Config& before, const Config& now);

// config.json: the configuration of the run's newest start. Nothing where there is none; Error (kBadUsage) where damaged.
std::optional<Config> recorded_configuration(const RunDirectory& run);
// Rank 0: writes config.json and config.yaml.
void record_configuration(const RunDirectory& run, const Config& config);

// Writes pids/rank-NNNN ("PID NODE"), so that a person or a supervisor finds each rank's process.
void record_process(const RunDirectory& run, const World& world);

// The command that goes on with this run, for the last line of every end.
std::string resume_command(int ranks, const std::vector<std::string>& arguments);

}  // namespace mso
