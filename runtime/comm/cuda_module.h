// Opens mso_cuda.so at run time, only where a GPU answers: mso itself is linked with nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mso {

inline constexpr int kCudaModuleAbi = 1;  // raised with every change of CudaModuleApi or Communicator

// What the module offers. Functions throw Error with CUDA's or NCCL's text; pointers are device memory unless
// said otherwise; streams are cudaStream_t, nullptr the default stream.
struct CudaModuleApi {
  int abi = 0;
  std::string (*versions)();  // "CUDA runtime 13.0, NCCL 2.28.9"
  int (*device_count)();      // devices this process may use (CUDA_VISIBLE_DEVICES); 0 without a driver
  std::string (*device_bus_id)(int device);  // PCI address: the same device has the same in every process
  std::string (*device_name)(int device);
  void (*use_device)(int device);  // of the calling thread

  // Collective over `cpu`: the same ranks, with device pointers, on a stream of its own that waits for what
  // is in `producer_stream` when an operation starts. Differences from the MPI one: messages between two
  // ranks are matched in the order of their calls, whatever their tags; after an expired deadline the group
  // is aborted for good.
  std::unique_ptr<Communicator> (*make_communicator)(Communicator& cpu, const std::string& name, int device,
                                                     void* producer_stream, double timeout_s);

  void* (*allocate)(size_t bytes);
  void (*release)(void* memory);
  void (*copy)(void* to, const void* from, size_t bytes);  // any direction; done on return
  void (*f32_to_bf16)(const float* input, uint16_t* output, size_t count, void* stream);
  void (*bf16_to_f32)(const uint16_t* input, float* output, size_t count, void* stream);
  // cuda_kernels.h
  void (*reduce_in_order)(void* out, const void* own, int rank, const void* others, size_t stride, int ranks,
                          size_t count, DType dtype, ReduceOp op, void* stream);
};

// Asks the driver (libcuda.so.1, opened at run time) how many GPUs there are.
struct GpuProbe {
  int devices = 0;
  std::string reason;  // why none: "no driver (libcuda.so.1)", "driver says: …"
};
GpuProbe probe_gpus();

// The module, opened once per process; nullptr where no GPU answers or this build has none, with the reason
// in
// `*why_not`. A module that is there but does not fit or load, with a GPU in the machine, is an Error.
const CudaModuleApi* open_cuda_module(std::string* why_not = nullptr);
// The same without asking for a GPU (tests; `mso --version`).
const CudaModuleApi* load_cuda_module(std::string* why_not);
// The same, logging one line: the GPUs found, or 'no GPU: CPU ranks (reason)'.
const CudaModuleApi* open_cuda_module_and_log();

// Which of its devices (an index) each rank takes: ranks of one host, in order, each the first of its list
// that is not taken. So it does not matter whether the launcher shows every rank all GPUs or each its own.
// `hosts` and `bus_ids` by rank. Error(kBadUsage) where a host has more ranks than GPUs. Pure.
std::vector<int> assign_devices(std::span<const std::string> hosts,
                                std::span<const std::vector<std::string>> bus_ids);
// Collective over `cpu`: this rank's device, by the above.
int choose_device(Communicator& cpu, const CudaModuleApi& module, double timeout_s);

}  // namespace mso

// The one symbol of mso_cuda.so.
extern "C" const mso::CudaModuleApi* mso_cuda_module();
