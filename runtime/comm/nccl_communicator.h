// Communicator over NCCL with device memory; part of mso_cuda.so. Sums are taken by an own kernel in the
// order of ranks, so that their bits are those of the CPU's.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace mso {

// Throws Error with CUDA's text unless `code` is cudaSuccess.
void check_cuda(int code, const std::string& doing);

// See CudaModuleApi::make_communicator.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& cpu, const std::string& name, int device,
                                                     void* producer_stream, double timeout_s);

}  // namespace mso
