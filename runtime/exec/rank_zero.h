// Work that one rank does for all: an error on rank 0 becomes the same error on every rank, so that no rank waits for
// one that gave up.
#pragma once

#include <functional>

#include "base/error.h"
#include "comm/communicator.h"

namespace mso {

// What the other ranks throw when rank 0's work failed: rank 0 tells the person, these end quietly with its code.
class RankZeroFailed : public Error {
 public:
  using Error::Error;
};

// Collective. Runs `work` on rank 0; the others wait at most `timeout_s` of silence. Throws rank 0's Error on
// rank 0 and RankZeroFailed with the same words on the others.
void on_rank_zero(Communicator& group, double timeout_s, const std::function<void()>& work);

}  // namespace mso
