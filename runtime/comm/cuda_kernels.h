// The CUDA kernels of the module, launched on a stream (cudaStream_t as void*, so that no CUDA header is
// needed). Each returns CUDA's error code, 0 for success; element functions in element_ops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_tensor.h"
#include "comm/communicator.h"

namespace mso {

// out[i] = reduction of element i over `ranks` contributions in the order of ranks (reduce_element). `out`
// may be `own`. Types and operations as in reduce.h.
int launch_reduce_in_order(void* out, const void* own, int rank, const void* others, size_t stride, int ranks,
                           size_t count, DType dtype, ReduceOp op, void* stream);
int launch_f32_to_bf16(const float* input, uint16_t* output, size_t count, void* stream);
int launch_bf16_to_f32(const uint16_t* input, float* output, size_t count, void* stream);

}  // namespace mso
