#include <dlfcn.h>
#include <sys/utsname.h>

#include <array>
#include <fstream>

#include "base/hash.h"
#include "node/drift.h"
#include "node/node_facts_read.h"

namespace mso {

namespace {

std::string own_program_hash() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  Hasher hasher;
  std::array<char, 1 << 16> buffer;
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) hasher.update(buffer.data(), static_cast<size_t>(in.gcount()));
  return hex64(hasher.digest());
}

// As the loader finds it; NCCL brings in CUDA's libraries, so it is asked only where there are GPUs.
std::string nccl_version() {
  void* library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return "";
  const auto ask = reinterpret_cast<int (*)(int*)>(::dlsym(library, "ncclGetVersion"));
  int number = 0;  // 22005: 2.20.5; before 2.9: 2804
  if (!ask || ask(&number) != 0) return "";
  const int major = number >= 10000 ? number / 10000 : number / 1000, minor = number >= 10000 ? number % 10000 / 100 : number % 1000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(number % 100);
}

}  // namespace

NodeVersions read_node_versions(const std::string& node) {
  NodeVersions versions;
  versions.node = node;
  const GpuVersions gpu = read_gpu_versions();
  versions.values.emplace_back("GPU driver", gpu.driver);
  versions.values.emplace_back("CUDA", gpu.cuda);
  versions.values.emplace_back("NCCL", gpu.driver.empty() ? "" : nccl_version());
  utsname kernel = {};
  if (::uname(&kernel) == 0) versions.values.emplace_back("kernel", kernel.release);
  versions.values.emplace_back("program", own_program_hash());
  return versions;
}

}  // namespace mso
