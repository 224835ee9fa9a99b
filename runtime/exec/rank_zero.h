// Errors that concern all ranks, told once: an error of one rank becomes the same error on every rank, so that no rank
// waits for one that gave up, and rank 0 alone tells the person.
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

// Collective. Every rank runs `work`; the others wait for a slow one at most `timeout_s` of silence. Where it failed on
// any, all throw: rank 0 the first rank's Error (with that rank's number, unless all failed alike), the others
// RankZeroFailed.
void together(Communicator& group, double timeout_s, const std::function<void()>& work);

// Thrown by every rank at the same place, from what all agreed on: rank 0 tells it, the others are quiet.
class AgreedError : public Error {
 public:
  using Error::Error;
};

}  // namespace mso
