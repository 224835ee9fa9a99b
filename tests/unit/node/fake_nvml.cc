// Stands for libnvidia-ml.so.1: two GPUs, the second split by MIG into two instances with a gap. FAKE_NVML_INIT fails init.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int objects[5];  // GPUs 0 and 1, instances 2 and 3
int number(void* device) { return static_cast<int>(static_cast<int*>(device) - objects); }
}  // namespace

extern "C" {
int nvmlInit_v2() { return std::getenv("FAKE_NVML_INIT") ? 9 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  if (i > 1) return 15;  // a GPU that fell off the bus
  return *device = &objects[i], 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  const char* uuids[] = {"GPU-00", "GPU-11", "MIG-22", "MIG-33"};
  return std::snprintf(out, size, "%s", uuids[number(device)]), 0;
}
int nvmlDeviceGetName(void*, char* out, unsigned size) { return std::snprintf(out, size, "NVIDIA H200"), 0; }
int nvmlDeviceGetMinorNumber(void* device, unsigned* minor) { return *minor = number(device) + 4, 0; }
int nvmlDeviceGetPciInfo_v3(void* device, void* info) {
  std::memset(info, 0, 16 + 5 * 4 + 32);
  std::snprintf(static_cast<char*>(info) + 36, 32, "00000000:%s:00.0", number(device) ? "9A" : "17");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  const unsigned long long gib[] = {141, 141, 16, 35};
  memory[0] = gib[number(device)] << 30, memory[1] = 5, memory[2] = 7;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* up) {
  if (link > 3) return 2;  // no such link
  return *up = link == 0 || (link == 1 && number(device) == 0), 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, void* info) {
  std::memset(info, 0, 16 + 5 * 4 + 32);
  std::snprintf(static_cast<char*>(info) + 36, 32, "00000000:%s:00.0", number(device) ? "17" : "9A");
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int* kind) { return *kind = 0, 0; }
int nvmlSystemGetDriverVersion(char* out, unsigned size) { return std::snprintf(out, size, "550.54.15"), 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 12040, 0; }
int nvmlDeviceGetMigMode(void* device, unsigned* on, unsigned* pending) {
  if (number(device) == 0) return 3;  // not supported
  return *on = 1, *pending = 1, 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) { return *count = 7, 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned i, void** device) {
  if (i != 0 && i != 4) return 6;  // not found
  return *device = &objects[i == 0 ? 2 : 3], 0;
}
}
