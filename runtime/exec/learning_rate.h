// The learning rate of a step: linear warm-up, then constant, linear or cosine decay. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace mso {

struct LearningRateSchedule {
  double peak = 1e-3;
  double minimum = 0;             // reached at `total_steps`
  uint64_t warmup_steps = 0;      // step i of the warm-up (from 0) has peak · (i + 1) / warmup_steps
  uint64_t total_steps = 1;
  std::string shape = "cosine";   // cosine | linear | constant
};

// Rate of step `step` (from 0). After the warm-up, with x the share of the remaining steps done, cosine is
// minimum + (peak − minimum) · (1 + cos πx) / 2 (Loshchilov & Hutter 2017, without restarts); beyond
// `total_steps` it stays at the last value.
double learning_rate_at(const LearningRateSchedule& schedule, uint64_t step);

}  // namespace mso
