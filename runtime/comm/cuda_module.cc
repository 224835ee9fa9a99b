#include "comm/cuda_module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "config.h"

namespace mso {

namespace {

// Beside the program in a build folder (libtool's .libs), else where it is installed; MSO_CUDA_MODULE wins.
std::filesystem::path find_module() {
  if (const char* given = std::getenv("MSO_CUDA_MODULE"); given != nullptr && *given != '\0') return given;
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const auto folder = program.parent_path();
  for (const auto& path : {folder / ".libs" / "mso_cuda.so", folder / "mso_cuda.so",
                           std::filesystem::path(MSO_PKGLIBDIR) / "mso_cuda.so"}) {
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

}  // namespace

GpuProbe probe_gpus() {
  // Closed never: the driver does not like it.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {0, "no driver (libcuda.so.1)"};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto text = reinterpret_cast<int (*)(int, const char**)>(dlsym(driver, "cuGetErrorString"));
  if (init == nullptr || count == nullptr) return {0, "libcuda.so.1 is not a CUDA driver"};
  int devices = 0;
  int code = init(0);
  if (code == 0) code = count(&devices);
  if (code != 0) {
    const char* words = nullptr;
    if (text == nullptr || text(code, &words) != 0 || words == nullptr) words = "unknown error";
    return {0, "the driver says: " + std::string(words) + " (" + std::to_string(code) + ")"};
  }
  if (devices == 0) return {0, "the driver offers no device"};
  return {devices, ""};
}

const CudaModuleApi* load_cuda_module(std::string* why_not) {
  static std::mutex mutex;
  static const CudaModuleApi* module = nullptr;
  std::lock_guard lock(mutex);
  if (module != nullptr) return module;
#ifndef MSO_HAVE_CUDA
  *why_not = "this build has no CUDA module";
  return nullptr;
#endif
  const std::filesystem::path path = find_module();
  if (path.empty()) {
    *why_not = "mso_cuda.so is not installed";
    return nullptr;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why_not = dlerror();
    return nullptr;
  }
  const auto entry = reinterpret_cast<const CudaModuleApi* (*)()>(dlsym(library, "mso_cuda_module"));
  if (entry == nullptr || entry()->abi != kCudaModuleAbi) {
    *why_not = path.string() + " belongs to another version of mso";
    return nullptr;
  }
  return module = entry();
}

const CudaModuleApi* open_cuda_module(std::string* why_not) {
  std::string reason;
  std::string& why = why_not != nullptr ? *why_not : reason;
#ifndef MSO_HAVE_CUDA
  why = "this build has no CUDA module";
  return nullptr;
#endif
  const GpuProbe probe = probe_gpus();
  if (probe.devices == 0) {
    why = probe.reason;
    return nullptr;
  }
  const CudaModuleApi* module = load_cuda_module(&why);
  if (module == nullptr) {
    throw Error("there is a GPU, but its module cannot be used", why,
                "install mso as a whole with its CUDA libraries, or train on CPUs with train.device=cpu");
  }
  if (module->device_count() == 0) {
    why = "the CUDA runtime of the module finds no usable device (" + module->versions() + ")";
    return nullptr;
  }
  return module;
}

const CudaModuleApi* open_cuda_module_and_log() {
  std::string why;
  const CudaModuleApi* module = open_cuda_module(&why);
  if (module == nullptr)
    log_info("no GPU: CPU ranks ({})", why);
  else
    log_info("{} GPU(s), the first is {}; {}", module->device_count(), module->device_name(0),
             module->versions());
  return module;
}

std::vector<int> assign_devices(std::span<const std::string> hosts,
                                std::span<const std::vector<std::string>> bus_ids) {
  std::vector<int> devices;
  std::map<std::string, std::set<std::string>> taken;
  for (size_t r = 0; r < hosts.size(); ++r) {
    int found = -1;
    for (size_t d = 0; d < bus_ids[r].size() && found < 0; ++d) {
      if (taken[hosts[r]].insert(bus_ids[r][d]).second) found = static_cast<int>(d);
    }
    if (found < 0) {
      throw Error("more ranks than GPUs on a host",
                  "rank " + std::to_string(r) + " on " + hosts[r] + ": all of its " +
                      std::to_string(bus_ids[r].size()) + " GPUs are taken by ranks before it",
                  "start one rank per GPU (see also CUDA_VISIBLE_DEVICES), or train.device=cpu",
                  ExitCode::kBadUsage);
    }
    devices.push_back(found);
  }
  return devices;
}

int choose_device(Communicator& cpu, const CudaModuleApi& module, double timeout_s) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::string mine = host;  // a line each: the host, then its devices
  for (int d = 0; d < module.device_count(); ++d) mine += "\n" + module.device_bus_id(d);
  std::vector<std::string> hosts;
  std::vector<std::vector<std::string>> bus_ids;
  for (const std::string& text : all_gather_text(cpu, mine, timeout_s)) {
    std::vector<std::string> lines;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    hosts.push_back(lines[0]);
    bus_ids.emplace_back(lines.begin() + 1, lines.end());
  }
  return assign_devices(hosts, bus_ids)[cpu.rank()];
}

}  // namespace mso
