#include "node/nvme_lanes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "node/request_text.h"

namespace mso {

namespace {

const std::vector<std::string>& modalities() {
  static const std::vector<std::string> names = {"image", "video"};
  return names;
}

bool valid_lanes(int64_t lanes) { return lanes == 1 || lanes == 2 || lanes == 4 || lanes == 8 || lanes == 16; }

const NvmeController* find_controller(const NvmeFacts& drives, std::string_view name) {
  for (const NvmeController& controller : drives.controllers)
    if (controller.name == name) return &controller;
  return nullptr;
}

}  // namespace

std::optional<std::vector<NvmeRequest>> parse_nvme_request(std::string_view text, std::vector<std::string>& mistakes) {
  const auto items = parse_request_items(text, "NVMe", modalities(), "image:1x4,video:2x8", mistakes);
  if (!items) return std::nullopt;
  std::vector<NvmeRequest> request;
  for (const RequestItem& item : *items) {
    const size_t x = item.value.find('x');
    const std::string_view value = item.value;
    const std::optional<int64_t> devices =
        x == std::string::npos ? std::nullopt : parse_small_number(value.substr(0, x), 1, 64);
    const std::optional<int64_t> lanes = x == std::string::npos ? std::nullopt : parse_small_number(value.substr(x + 1), 1, 16);
    if (!devices || !lanes || !valid_lanes(*lanes)) {
      mistakes.push_back(item.name + ": \"" + shown(item.value) +
                         "\" is not DRIVESxLANES, 1 to 64 drives of 1, 2, 4, 8 or 16 lanes (such as 1x4)");
      continue;
    }
    request.push_back({item.name, static_cast<int>(*devices), static_cast<int>(*lanes)});
  }
  if (request.size() != items->size()) return std::nullopt;
  return request;
}

std::string format_nvme_request(const std::vector<NvmeRequest>& request) {
  std::string text;
  for (const NvmeRequest& one : request)
    text += (text.empty() ? "" : ",") + one.modality + ":" + std::to_string(one.devices) + "x" + std::to_string(one.lanes);
  return text;
}

int lanes_of(const std::vector<NvmeRequest>& request) {
  int lanes = 0;  // a handful of modalities, 64 drives of 16 lanes each
  for (const NvmeRequest& one : request) lanes += one.devices * one.lanes;
  return lanes;
}

std::string format_nvme_holds(const std::vector<NvmeHold>& holds) {
  std::string text;
  for (const NvmeHold& hold : holds)
    text += (text.empty() ? "" : ",") + hold.controller + ":" + hold.modality + ":" + std::to_string(hold.lanes);
  return text;
}

std::optional<std::vector<NvmeHold>> parse_nvme_holds(std::string_view text) {
  std::vector<NvmeHold> holds;
  if (text.size() > 16384) return std::nullopt;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t first = item.find(':'), second = first == std::string_view::npos ? first : item.find(':', first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    const std::string_view name = item.substr(0, first), modality = item.substr(first + 1, second - first - 1);
    const std::optional<int64_t> lanes = parse_small_number(item.substr(second + 1), 1, 64);
    if (!name.starts_with("nvme") || !parse_small_number(name.substr(4), 0, 1 << 20) || !lanes ||
        std::ranges::find(modalities(), modality) == modalities().end())
      return std::nullopt;
    holds.push_back({std::string(name), std::string(modality), static_cast<int>(*lanes)});
  }
  return holds;
}

NvmePlan plan_nvme_lanes(const NvmeFacts& drives, const std::vector<NvmeHold>& held_by_others,
                         const std::vector<NvmeRequest>& request, int numa) {
  NvmePlan plan;
  std::map<std::string, int> free;  // controller → lanes nobody holds
  for (const NvmeController& drive : drives.controllers)
    if (drive.transport == "pcie") free[drive.name] = drive.lanes;
  for (const NvmeHold& hold : held_by_others)
    if (const auto there = free.find(hold.controller); there != free.end())
      there->second = std::max(0, there->second - hold.lanes);

  // Wide requests first: they have the fewest drives to choose from.
  std::vector<NvmeRequest> by_width = request;
  std::ranges::stable_sort(by_width, [](const NvmeRequest& a, const NvmeRequest& b) { return a.lanes > b.lanes; });
  for (const NvmeRequest& want : by_width) {
    std::vector<std::tuple<bool, int, size_t>> fitting;  // (far, lanes left over, position)
    for (size_t d = 0; d < drives.controllers.size(); ++d) {
      const NvmeController& drive = drives.controllers[d];
      const auto there = free.find(drive.name);
      if (there == free.end() || there->second < want.lanes) continue;
      fitting.emplace_back(numa >= 0 && drive.numa >= 0 && drive.numa != numa, there->second - want.lanes, d);
    }
    if (fitting.size() < static_cast<size_t>(want.devices)) {
      std::string have;
      for (const NvmeController& drive : drives.controllers)
        if (free.contains(drive.name))
          have += (have.empty() ? "" : ", ") + drive.name + " " + std::to_string(free[drive.name]) + " of " +
                  std::to_string(drive.lanes);
      plan.mistakes.push_back(want.modality + ":" + std::to_string(want.devices) + "x" + std::to_string(want.lanes) +
                              " asked, but " + std::to_string(fitting.size()) + " PCIe drive" +
                              (fitting.size() == 1 ? " has" : "s have") + " that many free lanes (" +
                              (have.empty() ? "this node has no PCIe drive" : "free: " + have) + ")");
      continue;
    }
    std::ranges::sort(fitting);
    for (int i = 0; i < want.devices; ++i) {
      const std::string& name = drives.controllers[std::get<2>(fitting[static_cast<size_t>(i)])].name;
      free[name] -= want.lanes;
      plan.holds.push_back({name, want.modality, want.lanes});
    }
  }
  if (!plan.mistakes.empty()) plan.holds.clear();
  std::ranges::stable_sort(plan.holds, {}, &NvmeHold::modality);
  return plan;
}

int numa_of_holds(const NvmeFacts& drives, const std::vector<NvmeHold>& holds, std::string_view modality) {
  for (const NvmeHold& hold : holds)
    if (hold.modality == modality)
      if (const NvmeController* drive = find_controller(drives, hold.controller)) return drive->numa;
  return -1;
}

std::string format_node_drives(const NodeDrives& drives) {
  NodeFacts facts;
  facts.host = drives.node;
  facts.boot_id = drives.boot_id;
  facts.nvme = drives.nvme;
  return format_node_facts(facts);
}

std::optional<NodeDrives> parse_node_drives(std::string_view text) {
  const std::optional<NodeFacts> facts = parse_node_facts(text);
  if (!facts) return std::nullopt;
  return NodeDrives{facts->host, facts->boot_id, facts->nvme};
}

namespace {

// A namespace as one node sees it.
struct Seen {
  const NodeDrives* node;
  const NvmeNamespace* ns;
  std::string nqn, transport;
  std::string where() const { return node->node + ":" + ns->name; }
};

std::vector<Seen> all_namespaces(const std::vector<NodeDrives>& nodes) {
  std::vector<Seen> seen;
  std::set<std::string> machines;
  for (const NodeDrives& node : nodes) {
    if (!node.boot_id.empty() && !machines.insert(node.boot_id).second) continue;  // the same machine again
    for (const NvmeNamespace& ns : node.nvme.namespaces) {
      Seen one{&node, &ns, "", ""};
      for (const std::string& path : ns.paths)
        if (const NvmeController* controller = find_controller(node.nvme, path)) {
          one.nqn = controller->nqn;
          one.transport = controller->transport;
          break;
        }
      seen.push_back(std::move(one));
    }
  }
  return seen;
}

// One and the same: over fabrics a subsystem can be attached to many nodes; a PCIe drive sits in one.
bool same_namespace(const Seen& a, const Seen& b) {
  if (a.nqn.empty() || a.nqn != b.nqn || a.ns->nsid != b.ns->nsid) return false;
  return a.node == b.node || (a.transport != "pcie" && b.transport != "pcie");
}

std::vector<std::string> identifiers(const NvmeNamespace& ns) {
  std::vector<std::string> list;
  if (!ns.uuid.empty()) list.push_back("UUID " + ns.uuid);
  if (!ns.nguid.empty()) list.push_back("NGUID " + ns.nguid);
  if (!ns.eui64.empty()) list.push_back("EUI64 " + ns.eui64);
  return list;
}

// (kind and value) of what identifies a drive as a whole.
std::vector<std::string> drive_identifiers(const NvmeController& drive) {
  std::vector<std::string> list;
  if (!drive.serial.empty() && drive.serial.find_first_not_of("0 ") != std::string::npos)
    list.push_back("serial number " + drive.serial + " (" + drive.model + ")");
  if (!drive.nqn.empty()) list.push_back("subsystem " + drive.nqn);
  return list;
}

}  // namespace

DriveReport compare_drives(const std::vector<NodeDrives>& nodes) {
  DriveReport report;
  const std::vector<Seen> seen = all_namespaces(nodes);
  std::map<std::string, std::vector<const Seen*>> known;  // identifier → namespaces that are not one another
  std::map<std::string, const NodeDrives*> attached;       // fabric namespace → first node
  std::set<std::string> shared;
  std::set<std::pair<const Seen*, const Seen*>> told;
  for (const Seen& one : seen) {
    if (one.ns->paths.size() > 1) {
      std::string paths;
      for (const std::string& path : one.ns->paths) paths += (paths.empty() ? "" : ", ") + path;
      report.multipath.push_back(one.where() + " over " + paths);
    }
    if (!one.nqn.empty() && one.transport != "pcie") {
      const std::string name = one.nqn + " namespace " + std::to_string(one.ns->nsid);
      if (attached.try_emplace(name, one.node).first->second != one.node && shared.insert(name).second)
        report.shared.push_back(name);
    }
    for (const std::string& identifier : identifiers(*one.ns)) {
      std::vector<const Seen*>& others = known[identifier];
      if (std::ranges::any_of(others, [&](const Seen* other) { return same_namespace(*other, one); })) continue;
      if (!others.empty() && told.insert({others.front(), &one}).second)
        report.duplicates.push_back(others.front()->where() + " and " + one.where() + " both have " + identifier);
      others.push_back(&one);
    }
  }

  // Drives as a whole, which may have no namespace or none with an identifier.
  std::set<std::string> machines;
  std::map<std::string, std::pair<const NodeDrives*, const NvmeController*>> first;
  std::set<std::pair<const NvmeController*, const NvmeController*>> drives_told;
  for (const NodeDrives& node : nodes) {
    if (!node.boot_id.empty() && !machines.insert(node.boot_id).second) continue;
    for (const NvmeController& drive : node.nvme.controllers) {
      if (drive.transport != "pcie") continue;
      for (const std::string& identifier : drive_identifiers(drive)) {
        const auto [there, inserted] = first.try_emplace(identifier, &node, &drive);
        if (inserted) continue;
        const auto& [other_node, other] = there->second;
        // In one node: two ports of one drive share the subsystem; without it the same serial number is a clone.
        if (other_node == &node && other->nqn == drive.nqn) continue;
        if (!drives_told.insert({other, &drive}).second) continue;
        report.duplicates.push_back(other_node->node + ":" + other->name + " and " + node.node + ":" + drive.name +
                                    " both have " + identifier);
      }
    }
  }
  return report;
}

}  // namespace mso
