// With native multipath a namespace is a head device nvme0n1 of the subsystem, and every path has a hidden device
// nvme0c1n1 below its controller; without it the namespace lies below its only controller.
#include "node/nvme_sysfs.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "node/first_line.h"
#include "node/nvme_identify.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string read_line(const fs::path& file) {
  std::string line = first_line(file);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

template <typename Number>
Number read_number(const fs::path& file, Number otherwise) {
  const std::string text = read_line(file);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);  // "8.0 GT/s PCIe": the 8.0
  return error == std::errc() ? value : otherwise;
}

// Lower case; nothing where it is all zeros, as sysfs shows what a drive does not have.
std::string identifier(const fs::path& file) {
  std::string text = read_line(file);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find_first_not_of("0-: ") == std::string::npos ? "" : text;
}

// "nvme12" → 12; "nvme0n1", "nvme0c1n2": the parts by their letters; none of that: false.
struct DeviceName {
  int subsystem = -1, path = -1, ns = -1;  // nvme<subsystem>[c<path>][n<ns>]
};
bool parse_name(const std::string& name, DeviceName* out) {
  if (!name.starts_with("nvme")) return false;
  size_t at = 4;
  auto take = [&](int* value) {
    const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), *value);
    if (error != std::errc()) return false;
    at = static_cast<size_t>(end - name.data());
    return true;
  };
  if (!take(&out->subsystem)) return false;
  if (at < name.size() && name[at] == 'c' && (++at, !take(&out->path))) return false;
  if (at < name.size() && name[at] == 'n' && (++at, !take(&out->ns))) return false;
  return at == name.size();
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

NvmeFacts read_nvme(const fs::path& root) {
  NvmeFacts facts;
  const fs::path controllers = root / "sys/class/nvme";
  std::map<std::string, NvmeNamespace> namespaces;
  for (const std::string& name : entries(controllers)) {
    DeviceName parsed;
    if (!parse_name(name, &parsed) || parsed.ns >= 0 || parsed.path >= 0) continue;
    const fs::path folder = controllers / name;
    NvmeController drive;
    drive.name = name;
    drive.model = read_line(folder / "model");
    drive.serial = read_line(folder / "serial");
    drive.transport = read_line(folder / "transport");
    drive.address = read_line(folder / "address");
    drive.nqn = read_line(folder / "subsysnqn");
    if (drive.transport == "pcie") {
      const fs::path pci = folder / "device";
      drive.numa = read_number(folder / "numa_node", read_number(pci / "numa_node", -1));
      drive.lanes = read_number(pci / "current_link_width", 0);
      drive.gigatransfers = read_number(pci / "current_link_speed", 0.0);
      if (drive.lanes > 64) drive.lanes = 0;  // 255: the link is down
    }
    for (const std::string& below : entries(folder)) {
      DeviceName device;
      if (!parse_name(below, &device) || device.ns < 0) continue;
      const std::string head = "nvme" + std::to_string(device.subsystem) + "n" + std::to_string(device.ns);
      NvmeNamespace& ns = namespaces[head];
      ns.paths.push_back(name);
      if (!ns.name.empty()) continue;
      ns.name = head;
      const fs::path at = folder / below, block = root / "sys/block" / head;
      ns.nsid = read_number(at / "nsid", device.ns);
      ns.uuid = identifier(at / "uuid");
      ns.nguid = identifier(at / "nguid");
      ns.eui64 = identifier(at / "eui");
      if (ns.uuid == ns.nguid) ns.uuid.clear();  // the kernel shows the NGUID where there is no UUID
      std::erase(ns.eui64, ' ');
      ns.bytes = read_number<uint64_t>(block / "size", read_number<uint64_t>(at / "size", 0)) * 512;
    }
    facts.controllers.push_back(std::move(drive));
  }
  std::ranges::sort(facts.controllers, {}, [](const NvmeController& drive) { return std::stoi(drive.name.substr(4)); });
  for (auto& [name, ns] : namespaces) facts.namespaces.push_back(std::move(ns));
  if (root != "/") return facts;
  for (const NvmeController& drive : facts.controllers) {
    const bool shown = std::ranges::any_of(facts.namespaces, [&](const NvmeNamespace& ns) {
      return std::ranges::find(ns.paths, drive.name) != ns.paths.end();
    });
    if (!shown)
      for (NvmeNamespace& hidden : identify_namespaces(drive.name)) facts.namespaces.push_back(std::move(hidden));
  }
  return facts;
}

}  // namespace mso
