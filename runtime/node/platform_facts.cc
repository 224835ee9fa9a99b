#include "node/platform_facts.h"

#include <sys/statfs.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "node/first_line.h"
#include "node/node_facts_read.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxLanes = 64;  // 255: the link is down

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) found.push_back(it->path());
  std::ranges::sort(found);
  return found;
}

// The number a text begins with: "200 Gb/sec (4X HDR)" → 200; `otherwise` where it begins with none.
template <typename Number>
Number leading_number(const std::string& text, Number otherwise) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : otherwise;
}

int lanes(const fs::path& file) {
  const int width = leading_number(first_line(file), 0);
  return width > 0 && width <= kMaxLanes ? width : 0;
}

uint64_t cache_size(const std::string& text) {  // "32768K"
  std::istringstream in(text);
  uint64_t value = 0;
  char unit = 0;
  in >> value >> unit;
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

uint64_t l3_of_the_poorest_socket(const fs::path& root) {
  std::map<std::string, std::map<std::string, uint64_t>> sockets;  // socket → CPUs that share a cache → its size
  for (const fs::path& cpu : entries(root / "sys/devices/system/cpu")) {
    const std::string name = cpu.filename().string();
    if (!name.starts_with("cpu") || name.size() < 4 || name.find_first_not_of("0123456789", 3) != std::string::npos) continue;
    for (const fs::path& cache : entries(cpu / "cache"))
      if (first_line(cache / "level") == "3")
        sockets[first_line(cpu / "topology/physical_package_id")][first_line(cache / "shared_cpu_list")] = cache_size(first_line(cache / "size"));
  }
  uint64_t least = 0;
  for (const auto& [socket, caches] : sockets) {
    uint64_t sum = 0;
    for (const auto& [sharers, size] : caches) sum += size;
    least = least == 0 ? sum : std::min(least, sum);
  }
  return least;
}

// Root ports are the bridges that hang on a host bridge itself: what the processors (and chipset) offer, in use or not.
void read_pcie(const fs::path& root, PlatformFacts& facts) {
  for (const fs::path& host : entries(root / "sys/devices")) {
    if (!host.filename().string().starts_with("pci")) continue;
    for (const fs::path& device : entries(host))
      if (first_line(device / "class").starts_with("0x0604")) facts.pcie_lanes += lanes(device / "max_link_width");
  }
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
    // Displays and accelerators, drives, network: what a slot too narrow, or a loose card, slows down.
    const std::string kind = first_line(device / "class").substr(0, 4);
    if (kind != "0x03" && kind != "0x12" && kind != "0x01" && kind != "0x02") continue;
    const int now = lanes(device / "current_link_width"), most = lanes(device / "max_link_width");
    if (now > 0 && now < most)
      facts.narrow_links.push_back(device.filename().string() + " x" + std::to_string(now) + " of x" + std::to_string(most));
  }
}

// Memory controllers of the kernel's EDAC drivers: "channel 3 slot 0", or "csrow 0 channel 3".
int channels_of_edac(const fs::path& root) {
  std::set<std::string> channels;
  for (const fs::path& controller : entries(root / "sys/devices/system/edac/mc")) {
    const std::string name = controller.filename().string();
    if (!name.starts_with("mc")) continue;
    for (const fs::path& module : entries(controller)) {
      const std::string part = module.filename().string();
      if (!part.starts_with("dimm") && !part.starts_with("rank")) continue;
      if (leading_number(first_line(module / "size"), 0) <= 0) continue;
      const std::string place = first_line(module / (part.starts_with("dimm") ? "dimm_location" : "rank_location"));
      const std::string where = place.empty() ? first_line(module / "dimm_location") : place;
      const size_t at = where.find("channel ");
      if (at != std::string::npos) channels.insert(name + " " + std::to_string(leading_number(where.substr(at + 8), 0)));
    }
  }
  return static_cast<int>(channels.size());
}

std::vector<InfinibandPort> read_infiniband(const fs::path& root) {
  std::vector<InfinibandPort> ports;
  for (const fs::path& device : entries(root / "sys/class/infiniband"))
    for (const fs::path& port : entries(device / "ports")) {
      if (const std::string layer = first_line(port / "link_layer"); !layer.empty() && layer != "InfiniBand") continue;
      ports.push_back({device.filename().string() + "/" + port.filename().string(), leading_number(first_line(port / "rate"), 0.0),
                       first_line(port / "state").find("ACTIVE") != std::string::npos});
    }
  return ports;
}

}  // namespace

int channels_of_dmi(const std::string& table) {
  std::set<std::string> channels;
  const auto byte = [&table](size_t at) { return static_cast<unsigned char>(table[at]); };
  for (size_t at = 0; at + 4 <= table.size();) {
    const unsigned type = byte(at), length = byte(at + 1);
    if (length < 4 || at + length > table.size()) break;
    // Texts follow the structure, each ended by a zero, all of them by a second one.
    std::vector<std::string> texts;
    size_t next = at + length;
    while (next < table.size() && table[next] != 0) {
      const size_t end = table.find('\0', next);
      if (end == std::string::npos) return 0;
      texts.push_back(table.substr(next, end - next));
      next = end + 1;
    }
    next = texts.empty() ? next + 2 : next + 1;
    if (type == 17 && length >= 0x12) {  // memory device: size at 0x0c, locators at 0x10 and 0x11
      const unsigned size = byte(at + 0x0c) | byte(at + 0x0d) << 8;
      const auto text = [&texts, &byte, at](size_t offset) {
        const size_t index = byte(at + offset);
        return index >= 1 && index <= texts.size() ? texts[index - 1] : std::string();
      };
      if (size != 0 && size != 0xffff) {
        // The slot within its channel is the number a locator ends with; a bank locator that says CHANNEL needs no more.
        const std::string bank = text(0x11);
        std::string locator = text(0x10);
        if (bank.find("CHANNEL") != std::string::npos || bank.find("Channel") != std::string::npos) {
          locator = bank;
        } else if (const size_t letter = locator.find_last_not_of("0123456789");
                   letter != std::string::npos && letter + 1 < locator.size() && locator[letter] >= 'A' && locator[letter] <= 'Z') {
          locator.resize(letter + 1);
        }
        channels.insert(bank.empty() || locator == bank ? locator : locator + "|" + (bank.find("NODE") == 0 ? bank : ""));
      }
    }
    if (type == 127) break;
    at = next;
  }
  return static_cast<int>(channels.size());
}

PlatformFacts read_platform_facts(const fs::path& root, const std::string& nvml_library) {
  PlatformFacts facts;
  read_pcie(root, facts);
  facts.memory_channels = channels_of_edac(root);
  if (facts.memory_channels > 0) {
    facts.memory_source = "EDAC";
  } else {
    std::ifstream in(root / "sys/firmware/dmi/tables/DMI", std::ios::binary);  // root's alone
    std::stringstream table;
    table << in.rdbuf();
    facts.memory_channels = channels_of_dmi(table.str());
    if (facts.memory_channels > 0) facts.memory_source = "DMI";
  }
  facts.l3_bytes = l3_of_the_poorest_socket(root);
  facts.infiniband = read_infiniband(root);
  facts.gpus = read_gpu_links(nvml_library);
  struct statfs shm = {};
  if (::statfs((root / "dev/shm").c_str(), &shm) == 0) facts.shm_free_bytes = shm.f_bavail * static_cast<uint64_t>(shm.f_bsize);
  return facts;
}

}  // namespace mso
