// `mso check --node`: what of the plugin's preparations took on this node. Reads, and changes nothing.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "node/check_line.h"
#include "node/node_facts.h"

namespace mso {

struct NodeCheckOptions {
  std::filesystem::path root = "/";  // where the node's files are (for tests)
  std::string slurm_conf;            // empty: $SLURM_CONF, then the usual places
  std::string slurm_version;         // of the installed Slurm, "22.05.8"; empty: unknown
};

// A line of plugstack.conf that loads a plugin.
struct PlugstackLine {
  std::string where;  // "FILE:LINE"
  bool required = false;
  std::string plugin;  // as written: a path, or a name that Slurm looks up in PluginDir
  std::vector<std::string> arguments;
};
// Lines of plugstack.conf and what it includes that name a file called `plugin_name`; what cannot be read is skipped.
std::vector<PlugstackLine> find_plugstack_lines(const std::filesystem::path& plugstack, const std::string& plugin_name);

// "Key=Value" of slurm.conf, last one wins, case of the key does not matter; empty: not there.
std::string slurm_conf_value(const std::filesystem::path& slurm_conf, const std::string& key);

// "22.05.8" of a plugin's plugin_version.
std::string slurm_version_text(unsigned int number);

std::vector<CheckLine> check_node(const NodeCheckOptions& options, const NodeFacts& facts, bool facts_kept);
// Parts of it, for tests.
std::vector<CheckLine> check_drives(const NodeFacts& facts);
std::vector<CheckLine> check_cpus(const NodeFacts& facts);
std::vector<CheckLine> check_gpus(const NodeFacts& facts);

std::string format_check(const std::vector<CheckLine>& lines);
nlohmann::json check_json(const std::vector<CheckLine>& lines);
// 0: nothing fails, warnings or not; 1: something fails.
int check_exit_code(const std::vector<CheckLine>& lines);

}  // namespace mso
