#include "node/nvme_identify.h"

#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace mso {

namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kTimeoutMs = 2000;
constexpr int kMaxNamespaces = 256;  // more than that of one refused controller need not be named

using Page = std::array<unsigned char, kPage>;

bool identify(int fd, uint32_t nsid, uint32_t cns, Page& page) {
  nvme_admin_cmd command = {};
  command.opcode = 0x06;
  command.nsid = nsid;
  command.cdw10 = cns;
  command.addr = reinterpret_cast<uintptr_t>(page.data());
  command.data_len = kPage;
  command.timeout_ms = kTimeoutMs;
  page.fill(0);
  return ::ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command) == 0;
}

std::string hex(const unsigned char* bytes, size_t count, bool dashes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (dashes && (i == 4 || i == 6 || i == 8 || i == 10)) text += '-';
    text += {kHex[bytes[i] >> 4], kHex[bytes[i] & 15]};
  }
  return text.find_first_not_of("0-") == std::string::npos ? "" : text;
}

}  // namespace

void read_identifiers(const unsigned char* list, size_t size, NvmeNamespace* ns) {
  for (size_t at = 0; at + 4 <= size && list[at] != 0;) {
    const size_t type = list[at], length = list[at + 1];
    if (at + 4 + length > size) return;
    const unsigned char* value = list + at + 4;
    if (type == 1 && length == 8) ns->eui64 = hex(value, 8, false);
    if (type == 2 && length == 16) ns->nguid = hex(value, 16, true);
    if (type == 3 && length == 16) ns->uuid = hex(value, 16, true);
    at += 4 + length;
  }
}

std::vector<NvmeNamespace> identify_namespaces(const std::string& name) {
  std::vector<NvmeNamespace> found;
  const int fd = ::open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return found;
  Page active, page;
  if (identify(fd, 0, 0x02, active)) {
    for (int i = 0; i < kMaxNamespaces; ++i) {
      uint32_t nsid;
      std::memcpy(&nsid, active.data() + 4 * i, 4);
      if (nsid == 0) break;
      NvmeNamespace ns;
      ns.name = name + " namespace " + std::to_string(nsid);
      ns.nsid = static_cast<int>(nsid);
      ns.paths = {name};
      if (identify(fd, nsid, 0x03, page)) read_identifiers(page.data(), page.size(), &ns);
      if (identify(fd, nsid, 0x00, page)) {  // of drives before NVMe 1.3, which have no list
        if (ns.nguid.empty()) ns.nguid = hex(page.data() + 104, 16, true);
        if (ns.eui64.empty()) ns.eui64 = hex(page.data() + 120, 8, false);
      }
      found.push_back(std::move(ns));
    }
  }
  ::close(fd);
  return found;
}

}  // namespace mso
