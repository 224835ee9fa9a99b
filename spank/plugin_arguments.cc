#include "spank/plugin_arguments.h"

#include <functional>

#include "base/suggest.h"
#include "base/units.h"
#include "node/request_text.h"

namespace mso {

namespace {

constexpr int kMaxNvmeLanes = 1024;

struct Argument {
  std::string name;
  std::function<bool(const std::string& value, PluginArguments& arguments)> set;  // false: not a value for it
  std::string wanted;
};

// An absolute path without "..", so that what is created and removed there is what the admin named.
bool set_path(const std::string& value, std::filesystem::path& path) {
  if (value.size() < 2 || value.size() > 200 || value[0] != '/') return false;
  path = value;
  for (const auto& part : path)
    if (part == "..") return false;
  if (!path.has_filename()) path = path.parent_path();
  return true;
}

bool set_size(const std::string& value, uint64_t& size) {
  const auto bytes = value.size() <= 32 ? parse_bytes(value) : std::nullopt;
  if (!bytes || *bytes < static_cast<int64_t>(kMinSnapshotBytes) ||
      *bytes > static_cast<int64_t>(kMaxSnapshotBytes))
    return false;
  size = static_cast<uint64_t>(*bytes);
  return true;
}

bool set_choice(const std::string& value, const std::string& yes, const std::string& no, bool& flag) {
  if (value != yes && value != no) return false;
  flag = value == yes;
  return true;
}

const std::vector<Argument>& known_arguments() {
  static const std::vector<Argument> arguments = {
      {"run", [](auto& v, auto& a) { return set_path(v, a.run_dir); }, "an absolute path"},
      {"profiles", [](auto& v, auto& a) { return set_path(v, a.profiles_dir); }, "an absolute path"},
      {"program", [](auto& v, auto& a) { return set_path(v, a.program); }, "an absolute path"},
      {"squeue", [](auto& v, auto& a) { return set_path(v, a.squeue); }, "an absolute path"},
      {"node-facts", [](auto& v, auto& a) { return set_path(v, a.node_facts); }, "an absolute path"},
      {"snapshot-default", [](auto& v, auto& a) { return set_size(v, a.snapshot_default); },
       "a size from 1M to 16T"},
      {"snapshot-max", [](auto& v, auto& a) { return set_size(v, a.snapshot_max); }, "a size from 1M to 16T"},
      {"snapshot-node-max",
       [](auto& v, auto& a) {
         if (v.empty() || v.back() != '%') return set_size(v, a.snapshot_node_max);
         const auto percent = parse_small_number(std::string_view(v).substr(0, v.size() - 1), 1, 100);
         if (percent) a.snapshot_node_percent = static_cast<int>(*percent);
         return percent.has_value();
       },
       "a size from 1M to 16T, or 1% to 100% of the node's memory"},
      {"nvme-max",
       [](auto& v, auto& a) {
         const auto lanes = parse_small_number(v, 1, kMaxNvmeLanes);
         if (lanes) a.nvme_max = static_cast<int>(*lanes);
         return lanes.has_value();
       },
       "PCIe lanes from 1 to 1024"},
      {"lock-timeout",
       [](auto& v, auto& a) {
         const auto seconds = parse_small_number(v, 1, 600);
         if (seconds) a.lock_timeout_s = static_cast<double>(*seconds);
         return seconds.has_value();
       },
       "seconds from 1 to 600"},
      {"orphans", [](auto& v, auto& a) { return set_choice(v, "kill", "leave", a.kill_orphans); },
       "kill or leave"},
      {"confirm", [](auto& v, auto& a) { return set_choice(v, "yes", "no", a.confirm); }, "yes or no"},
      {"faults", [](auto& v, auto& a) { return set_choice(v, "allow", "ignore", a.allow_faults); },
       "allow or ignore"},
      {"decoder-cgroups", [](auto& v, auto& a) { return set_choice(v, "yes", "no", a.decoder_cgroups); },
       "yes or no"},
      {"mps", [](auto& v, auto& a) { return set_choice(v, "yes", "no", a.mps); }, "yes or no"},
      {"io-priority",
       [](auto& v, auto& a) {
         if (v.size() != 4 || v.compare(0, 3, "be:") != 0 || v[3] < '0' || v[3] > '7') return false;
         a.io_priority = v;
         return true;
       },
       "be:0 to be:7"},
      {"decoder-nice",
       [](auto& v, auto& a) {
         a.decoder_nice.reset();
         if (v == "no") return true;
         const auto below = v.starts_with('-') ? parse_small_number(std::string_view(v).substr(1), 1, 20) : std::nullopt;
         if (below) a.decoder_nice = -static_cast<int>(*below);
         return below.has_value();
       },
       "no, or -20 to -1"},
      {"nvme-lane-rate", [](auto& v, auto& a) { return set_size(v, a.nvme_lane_rate); },
       "bytes a second from 1M to 16T"},
      {"io-weight",
       [](auto& v, auto& a) {
         const auto weight = parse_small_number(v, 1, 10000);
         if (weight) a.io_weight = static_cast<int>(*weight);
         return weight.has_value();
       },
       "a number from 1 to 10000"},
  };
  return arguments;
}

}  // namespace

PluginArguments parse_plugin_arguments(const std::vector<std::string>& arguments,
                                       const InstalledPaths& installed) {
  PluginArguments parsed;
  parsed.program = installed.program;
  parsed.squeue = installed.squeue;
  parsed.node_facts = installed.node_facts;
  std::vector<std::string> names;
  for (const Argument& known : known_arguments()) names.push_back(known.name);
  for (const RequestFieldNames& field : request_fields()) names.push_back(field.key);
  for (const std::string& text : arguments) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals),
                      value = equals == std::string::npos ? "" : text.substr(equals + 1);
    bool found = false;
    for (const Argument& known : known_arguments()) {
      if (name != known.name) continue;
      found = true;
      if (!known.set(value, parsed))
        parsed.mistakes.push_back(name + "=" + shown(value) + " is not " + known.wanted);
    }
    for (const RequestFieldNames& field : request_fields()) {
      if (name != field.key) continue;
      found = true;
      parsed.defaults[field.field] = RequestSource::Value{value, "plugstack.conf, " + name};
    }
    if (found) continue;
    const std::string near = nearest_name(name, names);
    parsed.mistakes.push_back("unknown argument " + shown(name) +
                              (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  // A wrong default of the admin's shows here, before a user meets it.
  std::vector<RequestMistake> mistakes;
  merge_request({parsed.defaults}, "", mistakes);
  for (const RequestMistake& mistake : mistakes)
    parsed.mistakes.push_back(mistake.where + ": " + mistake.message);
  return parsed;
}

}  // namespace mso
