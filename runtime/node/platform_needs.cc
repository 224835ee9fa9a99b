#include "node/platform_needs.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "base/units.h"
#include "node/request_text.h"

namespace mso {

namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}
std::string size_text(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

CheckLine line(std::string name, bool enough, CheckState shortfall, std::string found, std::string limit, std::string hint) {
  return {std::move(name), enough ? CheckState::kOk : shortfall, std::move(found), enough ? "" : std::move(hint), std::move(limit)};
}

CheckLine check_nvlink(const std::vector<GpuLinks>& gpus, CheckState shortfall) {
  const std::string name = "NVLink", limit = "every GPU linked to every other";
  std::vector<std::string> missing;
  int links = gpus[0].active;
  for (size_t a = 0; a < gpus.size(); ++a) {
    links = std::min(links, gpus[a].active);
    for (size_t b = a + 1; b < gpus.size(); ++b) {
      const auto leads_to = [](const GpuLinks& from, const GpuLinks& to) { return std::ranges::find(from.peers, to.pci) != from.peers.end(); };
      if ((gpus[a].to_switch && gpus[b].to_switch) || (leads_to(gpus[a], gpus[b]) && leads_to(gpus[b], gpus[a]))) continue;
      missing.push_back(std::to_string(a) + "-" + std::to_string(b));
    }
  }
  std::string found = std::to_string(gpus.size()) + " GPUs";
  if (missing.empty())
    found += ", full mesh, " + std::to_string(links) + " links each";
  else {
    found += ", not linked:";
    for (size_t i = 0; i < missing.size() && i < 10; ++i) found += " " + missing[i];
    if (missing.size() > 10) found += " …";
  }
  return line(name, missing.empty(), shortfall, found, limit,
              "nvidia-smi nvlink --status; is the fabric manager running? nvlink:off in the needs accepts it");
}

CheckLine check_infiniband(const std::vector<InfinibandPort>& ports, double least, CheckState shortfall) {
  double fastest = 0;
  std::string found;
  for (const InfinibandPort& port : ports) {
    if (port.active) fastest = std::max(fastest, port.gigabits);
    found += (found.empty() ? "" : ", ") + port.name + " " + (port.active ? number_text(port.gigabits) + " Gb/s" : "down");
  }
  return line("InfiniBand", fastest >= least, shortfall, found.empty() ? "no port" : found, number_text(least) + " Gb/s on a port",
              "ibstat; cable and switch port; infiniband:N in the needs accepts less, infiniband:off other networks");
}

}  // namespace

bool parse_platform_needs(std::string_view text, PlatformNeeds& needs, std::vector<std::string>& mistakes) {
  static const std::vector<std::string> known = {"pcie-lanes", "memory-channels", "l3", "nvlink", "infiniband", "tmpfs"};
  const size_t before = mistakes.size();
  const auto items = parse_request_items(text, "need", known, "pcie-lanes:64,infiniband:off", mistakes);
  if (!items) return false;
  PlatformNeeds changed = needs;
  for (const RequestItem& item : *items) {
    const bool off = item.value == "off";
    const auto number = [&](int64_t most) {
      const auto value = off ? std::optional<int64_t>(0) : parse_small_number(item.value, 0, most);
      if (!value) mistakes.push_back(item.name + ": \"" + shown(item.value) + "\" is not a number up to " + std::to_string(most) + ", or off");
      return value.value_or(0);
    };
    const auto size = [&] {
      const auto value = off ? std::optional<int64_t>(0) : item.value.size() <= 24 ? parse_bytes(item.value) : std::nullopt;
      if (!value) mistakes.push_back(item.name + ": \"" + shown(item.value) + "\" is not a size, or off");
      return static_cast<uint64_t>(value.value_or(0));
    };
    if (item.name == "pcie-lanes") changed.pcie_lanes = static_cast<int>(number(100000));
    if (item.name == "memory-channels") changed.memory_channels = static_cast<int>(number(100000));
    if (item.name == "l3") changed.l3_bytes = size();
    if (item.name == "tmpfs") changed.tmpfs_bytes = size();
    if (item.name == "infiniband") changed.infiniband_gigabits = static_cast<double>(number(100000));
    if (item.name == "nvlink") {
      if (!off && item.value != "mesh") mistakes.push_back("nvlink: \"" + shown(item.value) + "\" is not mesh or off");
      changed.nvlink_mesh = !off;
    }
  }
  if (mistakes.size() != before) return false;
  needs = changed;
  return true;
}

PlatformNeeds platform_needs(const std::string& text, const std::filesystem::path& root) {
  PlatformNeeds needs;
  std::vector<std::string> mistakes;
  const std::filesystem::path file = root / "etc/mso/needs.conf";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find('#'));
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    const size_t before = mistakes.size();
    if (!line.empty()) parse_platform_needs(line, needs, mistakes);
    for (size_t i = before; i < mistakes.size(); ++i) mistakes[i] = file.string() + ": " + mistakes[i];
  }
  if (!text.empty()) parse_platform_needs(text, needs, mistakes);
  if (mistakes.empty()) return needs;
  std::string all;
  for (const std::string& mistake : mistakes) all += (all.empty() ? "" : "; ") + mistake;
  throw Error("the hardware's needs cannot be read", all, "such as pcie-lanes:64,infiniband:off", ExitCode::kBadUsage);
}

std::vector<CheckLine> check_platform(const PlatformFacts& facts, const PlatformNeeds& needs, CheckState shortfall) {
  std::vector<CheckLine> lines;
  if (needs.pcie_lanes > 0)
    lines.push_back(line("PCIe lanes", facts.pcie_lanes >= needs.pcie_lanes, shortfall,
                         facts.pcie_lanes > 0 ? std::to_string(facts.pcie_lanes) + " of all root ports" : "no root port",
                         std::to_string(needs.pcie_lanes), "slots that the firmware has switched off or split? pcie-lanes:N in the needs accepts less"));
  for (const std::string& link : facts.narrow_links)
    lines.push_back({"PCIe link", shortfall == CheckState::kOk ? CheckState::kOk : CheckState::kWarn, link,
                     "a narrower slot than the card's, a riser, or a card to be seated again", ""});
  if (needs.memory_channels > 0)
    // What cannot be seen is no shortfall: nobody is refused for it.
    lines.push_back(line("memory channels", facts.memory_channels >= needs.memory_channels,
                         facts.memory_channels > 0 ? shortfall : CheckState::kWarn,
                         facts.memory_channels > 0 ? std::to_string(facts.memory_channels) + " in use (" + facts.memory_source + ")"
                                                   : "unknown: no EDAC driver, and no DMI table that can be read",
                         std::to_string(needs.memory_channels), facts.memory_channels > 0 ? "a module in every channel; memory-channels:N in the needs accepts fewer"
                                                                                          : "the DMI table is for root alone; memory-channels:off asks no more"));
  if (needs.l3_bytes > 0)
    lines.push_back(line("L3 cache", facts.l3_bytes >= needs.l3_bytes, shortfall, facts.l3_bytes > 0 ? size_text(facts.l3_bytes) + " of a socket" : "unknown",
                         size_text(needs.l3_bytes), "decoding of pictures and video slows down; l3:SIZE in the needs accepts less"));
  if (needs.nvlink_mesh && facts.gpus.size() > 1) lines.push_back(check_nvlink(facts.gpus, shortfall));
  if (needs.infiniband_gigabits > 0) lines.push_back(check_infiniband(facts.infiniband, needs.infiniband_gigabits, shortfall));
  if (needs.tmpfs_bytes > 0)
    lines.push_back(line("RAM disk", facts.shm_free_bytes >= needs.tmpfs_bytes, shortfall, size_text(facts.shm_free_bytes) + " free in /dev/shm",
                         size_text(needs.tmpfs_bytes), "remove what dead jobs left there, or mount it larger"));
  return lines;
}

std::string describe_shortfalls(const std::vector<CheckLine>& lines) {
  std::string text;
  for (const CheckLine& one : lines)
    if (one.state == CheckState::kFail)
      text += (text.empty() ? "" : ", ") + one.name + " " + one.found + (one.limit.empty() ? "" : " (" + one.limit + " wanted)");
  return text;
}

}  // namespace mso
