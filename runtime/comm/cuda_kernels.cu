#include <cuda_runtime.h>

#include "comm/cuda_kernels.h"
#include "comm/element_ops.h"

namespace mso {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;  // grid-stride loops: enough to fill a GPU, whatever the size

unsigned blocks_for(size_t count) {
  const size_t needed = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(needed < kBlocks ? needed : kBlocks);
}

template <typename Op, typename T>
__global__ void reduce_kernel(T* out, const T* own, int rank, const T* others, size_t stride, int ranks,
                              size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    out[i] = reduce_element<Op>(own, rank, others, stride, ranks, i);
  }
}

__global__ void f32_to_bf16_kernel(const float* input, uint16_t* output, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    output[i] = f32_to_bf16(input[i]);
  }
}

__global__ void bf16_to_f32_kernel(const uint16_t* input, float* output, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    output[i] = bf16_to_f32(input[i]);
  }
}

template <typename Op, typename T>
int launch_typed(void* out, const void* own, int rank, const void* others, size_t stride, int ranks, size_t count,
                 void* stream) {
  reduce_kernel<Op, T><<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<T*>(out), static_cast<const T*>(own), rank, static_cast<const T*>(others), stride, ranks, count);
  return cudaGetLastError();
}

}  // namespace

int launch_reduce_in_order(void* out, const void* own, int rank, const void* others, size_t stride, int ranks,
                           size_t count, DType dtype, ReduceOp op, void* stream) {
  if (count == 0) return 0;
#define MSO_LAUNCH(OP, T) return launch_typed<OP, T>(out, own, rank, others, stride, ranks, count, stream)
#define MSO_CASES(T, SUM_T)                          \
  switch (op) {                                      \
    case ReduceOp::kSum: MSO_LAUNCH(SumOp, SUM_T);   \
    case ReduceOp::kMax: MSO_LAUNCH(MaxOp, T);       \
    case ReduceOp::kMin: MSO_LAUNCH(MinOp, T);       \
    default: break;                                  \
  }
  switch (dtype) {
    case DType::kF32: MSO_CASES(float, float); break;
    case DType::kF64: MSO_CASES(double, double); break;
    case DType::kI64: MSO_CASES(int64_t, uint64_t); break;
    case DType::kU64:
      if (op == ReduceOp::kBitOr) MSO_LAUNCH(BitOrOp, uint64_t);
      MSO_CASES(uint64_t, uint64_t);
      break;
    default: break;
  }
#undef MSO_CASES
#undef MSO_LAUNCH
  return cudaErrorInvalidValue;
}

int launch_f32_to_bf16(const float* input, uint16_t* output, size_t count, void* stream) {
  if (count == 0) return 0;
  f32_to_bf16_kernel<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, output, count);
  return cudaGetLastError();
}

int launch_bf16_to_f32(const uint16_t* input, float* output, size_t count, void* stream) {
  if (count == 0) return 0;
  bf16_to_f32_kernel<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(input, output, count);
  return cudaGetLastError();
}

}  // namespace mso
