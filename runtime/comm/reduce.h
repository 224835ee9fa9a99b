// Element-wise reduction of several buffers in the order given: the one place where contributions of ranks
// are added up, so that every path (one message, many, GPU twin) gives the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "comm/communicator.h"

namespace mso {

// out[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) … `out` may be one of the inputs (exactly), else
// must not overlap them. F32, F64, I64, U64; kBitOr: U64 only; anything else is an Error. Integer sums wrap
// around. At least one input.
void reduce_in_order(void* out, std::span<const void* const> inputs, size_t count, DType dtype, ReduceOp op);

// Error unless reduce_in_order can do it: called before anything is sent.
void check_reducible(DType dtype, ReduceOp op);

}  // namespace mso
