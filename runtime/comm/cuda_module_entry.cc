// mso_cuda.so: the table of what it offers (see cuda_module.h).
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "comm/cuda_kernels.h"
#include "comm/cuda_module.h"
#include "comm/nccl_communicator.h"

namespace mso {

namespace {

std::string versions() {
  int cuda = 0, nccl = 0;
  cudaRuntimeGetVersion(&cuda);
  ncclGetVersion(&nccl);
  return "CUDA runtime " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10) + ", NCCL " +
         std::to_string(nccl / 10000) + "." + std::to_string(nccl % 10000 / 100) + "." +
         std::to_string(nccl % 100);
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // forget it
    return 0;
  }
  return count;
}

std::string device_bus_id(int device) {
  char text[32] = "";
  check_cuda(cudaDeviceGetPCIBusId(text, sizeof text, device), "device " + std::to_string(device));
  return text;
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "device " + std::to_string(device));
  return properties.name;
}

constexpr CudaModuleApi kApi = {
    .abi = kCudaModuleAbi,
    .versions = versions,
    .device_count = device_count,
    .device_bus_id = device_bus_id,
    .device_name = device_name,
    .use_device =
        [](int device) { check_cuda(cudaSetDevice(device), "choosing device " + std::to_string(device)); },
    .make_communicator = make_nccl_communicator,
    .allocate =
        [](size_t bytes) {
          void* memory = nullptr;
          check_cuda(cudaMalloc(&memory, bytes),
                     "getting " + std::to_string(bytes) + " bytes of device memory");
          return memory;
        },
    .release = [](void* memory) { check_cuda(cudaFree(memory), "giving device memory back"); },
    .copy =
        [](void* to, const void* from, size_t bytes) {
          check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault),
                     "copying " + std::to_string(bytes) + " bytes");
        },
    .f32_to_bf16 =
        [](const float* input, uint16_t* output, size_t count, void* stream) {
          check_cuda(launch_f32_to_bf16(input, output, count, stream), "f32_to_bf16");
        },
    .bf16_to_f32 =
        [](const uint16_t* input, float* output, size_t count, void* stream) {
          check_cuda(launch_bf16_to_f32(input, output, count, stream), "bf16_to_f32");
        },
    .reduce_in_order =
        [](void* out, const void* own, int rank, const void* others, size_t stride, int ranks, size_t count,
           DType dtype, ReduceOp op, void* stream) {
          check_cuda(launch_reduce_in_order(out, own, rank, others, stride, ranks, count, dtype, op, stream),
                     "reduce_in_order");
        },
};

}  // namespace
}  // namespace mso

extern "C" const mso::CudaModuleApi* mso_cuda_module() {
  return &mso::kApi;
}
