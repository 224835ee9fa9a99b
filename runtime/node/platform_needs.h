// What a node's hardware should be able to do, held against what it can: one line each with measured value, limit and advice.
// Pure but for platform_needs(), which reads a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/check_line.h"
#include "node/platform_facts.h"

namespace mso {

// 0 or false: not looked at.
struct PlatformNeeds {
  int pcie_lanes = 112;
  int memory_channels = 12;
  uint64_t l3_bytes = uint64_t{60} << 20;
  bool nvlink_mesh = true;
  double infiniband_gigabits = 200;
  uint64_t tmpfs_bytes = uint64_t{64} << 20;
  bool operator==(const PlatformNeeds&) const = default;
};

// "pcie-lanes:64,memory-channels:8,l3:32M,nvlink:off,infiniband:100,tmpfs:1G" over `needs`; "off" switches one off. Mistakes
// are appended, and nothing is changed then.
bool parse_platform_needs(std::string_view text, PlatformNeeds& needs, std::vector<std::string>& mistakes);

// The site's needs over the built-in ones, then `text` (ero.needs) over these. The site's: /etc/mso/needs.conf, the same
// grammar, one or more a line, '#' begins a comment. Error (kBadUsage) with all mistakes.
PlatformNeeds platform_needs(const std::string& text, const std::filesystem::path& root = "/");

// A fact that falls short has the state `shortfall`. NVLink is looked at where there are two GPUs or more.
std::vector<CheckLine> check_platform(const PlatformFacts& facts, const PlatformNeeds& needs, CheckState shortfall);

// "PCIe lanes 0 (112 wanted), …": the lines that fail, for one sentence; empty: nothing falls short.
std::string describe_shortfalls(const std::vector<CheckLine>& lines);

}  // namespace mso
