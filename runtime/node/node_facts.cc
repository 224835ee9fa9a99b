#include "node/node_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/joined.h"

namespace mso {

namespace {

constexpr std::string_view kFirstLine = "mso-node-facts 1";
constexpr size_t kMaxFactsText = 4u << 20;

// Values are written with everything but letters, digits and a few marks as %XX, so that a drive's name with blanks,
// newlines or '=' in it stays one word.
std::string escaped_value(std::string_view value) {
  constexpr std::string_view kPlain = "-_.:/,+";
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : value) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
        kPlain.find(static_cast<char>(c)) != std::string_view::npos)
      out += static_cast<char>(c);
    else
      out += {'%', kHex[c >> 4], kHex[c & 15]};
  }
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Fields "key=value" of one line. Any damage makes ok() false.
class Fields {
 public:
  explicit Fields(std::string_view line) {
    for (size_t at = 0; at < line.size();) {
      const size_t end = std::min(line.find(' ', at), line.size());
      const std::string_view word = line.substr(at, end - at);
      at = end + 1;
      const size_t equals = word.find('=');
      if (word.empty()) continue;
      if (equals == std::string_view::npos)
        ok_ = false;
      else
        values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }

  std::string text(std::string_view key) {
    std::string out;
    const std::string_view value = find(key);
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] != '%') {
        out += value[i];
        continue;
      }
      const int high = i + 2 < value.size() ? hex_digit(value[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(value[i + 2]) : -1;
      if (low < 0) {
        ok_ = false;
        return out;
      }
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
    return out;
  }
  template <typename Number>
  Number number(std::string_view key) {
    const std::string_view value = find(key);
    Number out{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size()) ok_ = false;
    return out;
  }
  std::vector<std::string> list(std::string_view key) {
    std::vector<std::string> out;
    const std::string value = text(key);
    for (size_t at = 0; at < value.size();) {
      const size_t end = std::min(value.find(',', at), value.size());
      out.push_back(value.substr(at, end - at));
      at = end + 1;
    }
    return out;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view find(std::string_view key) {
    const auto there = values_.find(key);
    if (there == values_.end()) {
      ok_ = false;
      return {};
    }
    return there->second;
  }
  std::map<std::string_view, std::string_view> values_;
  bool ok_ = true;
};

std::string lanes_speed(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end);
}

}  // namespace

std::string format_node_facts(const NodeFacts& facts) {
  std::string out(kFirstLine);
  auto field = [&](const char* key, const std::string& value) { out += std::string(" ") + key + "=" + escaped_value(value); };
  auto number = [&](const char* key, auto value) { out += std::string(" ") + key + "=" + std::to_string(value); };
  out += "\nnode";
  field("host", facts.host);
  field("boot", facts.boot_id);
  number("l3", facts.l3_bytes);
  number("memory", facts.memory_bytes);
  field("gpu_note", facts.gpu_note);
  for (const CpuFact& cpu : facts.cpus) {
    out += "\ncpu";
    number("id", cpu.cpu);
    number("core", cpu.core);
    number("numa", cpu.numa);
  }
  for (const GpuFact& gpu : facts.gpus) {
    out += "\ngpu";
    number("index", gpu.index);
    number("minor", gpu.minor);
    number("numa", gpu.numa);
    number("memory", gpu.memory_bytes);
    field("uuid", gpu.uuid);
    field("name", gpu.name);
    field("pci", gpu.pci);
    for (const MigFact& instance : gpu.mig) {
      out += "\nmig";
      field("uuid", instance.uuid);
      number("memory", instance.memory_bytes);
    }
  }
  for (const NvmeController& drive : facts.nvme.controllers) {
    out += "\nnvme";
    field("name", drive.name);
    field("model", drive.model);
    field("serial", drive.serial);
    field("transport", drive.transport);
    field("address", drive.address);
    field("nqn", drive.nqn);
    number("numa", drive.numa);
    number("lanes", drive.lanes);
    field("speed", lanes_speed(drive.gigatransfers));
  }
  for (const NvmeNamespace& ns : facts.nvme.namespaces) {
    out += "\nnamespace";
    field("name", ns.name);
    number("nsid", ns.nsid);
    field("uuid", ns.uuid);
    field("nguid", ns.nguid);
    field("eui64", ns.eui64);
    number("bytes", ns.bytes);
    field("paths", joined(ns.paths, ","));
  }
  return out + "\nend\n";
}

std::optional<NodeFacts> parse_node_facts(std::string_view text) {
  if (text.size() > kMaxFactsText || !text.ends_with("\nend\n")) return std::nullopt;
  NodeFacts facts;
  bool first = true, ok = true;
  for (size_t at = 0; at < text.size() && ok;) {
    const size_t end = text.find('\n', at);  // there is one: the text ends with it
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (first) {
      if (line != kFirstLine) return std::nullopt;
      first = false;
      continue;
    }
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view kind = line.substr(0, space);
    if (kind == "end") {
      if (at != text.size()) return std::nullopt;
      break;
    }
    Fields f(line.substr(std::min(space + 1, line.size())));
    if (kind == "node") {
      facts.host = f.text("host");
      facts.boot_id = f.text("boot");
      facts.l3_bytes = f.number<uint64_t>("l3");
      facts.memory_bytes = f.number<uint64_t>("memory");
      facts.gpu_note = f.text("gpu_note");
    } else if (kind == "cpu") {
      facts.cpus.push_back({f.number<int>("id"), f.number<int>("core"), f.number<int>("numa")});
      ok = facts.cpus.back().cpu >= 0 && facts.cpus.back().cpu < kMaxCpus;
    } else if (kind == "gpu") {
      facts.gpus.push_back({f.number<int>("index"), f.number<int>("minor"), f.text("uuid"), f.text("name"), f.text("pci"),
                            f.number<int>("numa"), f.number<uint64_t>("memory"), {}});
    } else if (kind == "mig") {
      if (facts.gpus.empty()) return std::nullopt;
      facts.gpus.back().mig.push_back({f.text("uuid"), f.number<uint64_t>("memory")});
    } else if (kind == "nvme") {
      facts.nvme.controllers.push_back({f.text("name"), f.text("model"), f.text("serial"), f.text("transport"),
                                        f.text("address"), f.text("nqn"), f.number<int>("numa"), f.number<int>("lanes"),
                                        f.number<double>("speed")});
    } else if (kind == "namespace") {
      facts.nvme.namespaces.push_back({f.text("name"), f.number<int>("nsid"), f.text("uuid"), f.text("nguid"), f.text("eui64"),
                                       f.number<uint64_t>("bytes"), f.list("paths")});
    } else {
      ok = false;
    }
    ok = ok && f.ok();
  }
  if (!ok) return std::nullopt;
  return facts;
}

std::optional<NodeFacts> load_node_facts(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat info = {};
  std::string text;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_uid == 0 || info.st_uid == ::geteuid()) &&
      (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size <= static_cast<off_t>(kMaxFactsText)) {
    text.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t got = ::read(fd, text.data() + done, text.size() - done);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
  }
  ::close(fd);
  std::optional<NodeFacts> facts = parse_node_facts(text);
  if (facts && facts->boot_id != current_boot_id()) return std::nullopt;  // left from before a reboot, or copied
  return facts;
}

std::string current_boot_id() {
  std::array<char, 64> buffer;
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t size = ::read(fd, buffer.data(), buffer.size());
  ::close(fd);
  std::string id(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

CpuSet cpus_of_numa(const std::vector<CpuFact>& cpus, int numa) {
  CpuSet set;
  for (const CpuFact& fact : cpus)
    if (fact.numa == numa) set.push_back(fact.cpu);
  std::ranges::sort(set);
  return set;
}

std::string describe_numa(const std::vector<CpuFact>& cpus) {
  std::map<int, CpuSet> nodes;
  for (const CpuFact& fact : cpus) nodes[fact.numa].push_back(fact.cpu);
  std::string text;
  for (auto& [numa, set] : nodes) {
    std::ranges::sort(set);
    text += (text.empty() ? "node " : "; node ") + std::to_string(numa) + ": " + format_cpu_list(set);
  }
  return text;
}

}  // namespace mso
