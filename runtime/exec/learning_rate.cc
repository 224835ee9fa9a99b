#include "exec/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace mso {

double learning_rate_at(const LearningRateSchedule& schedule, uint64_t step) {
  if (step < schedule.warmup_steps)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  if (schedule.shape == "constant") return schedule.peak;
  const double decay_steps = static_cast<double>(
      schedule.total_steps > schedule.warmup_steps ? schedule.total_steps - schedule.warmup_steps : 1);
  const double x = std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / decay_steps);
  double remaining;
  if (schedule.shape == "cosine")
    remaining = 0.5 * (1.0 + std::cos(std::numbers::pi * x));
  else if (schedule.shape == "linear")
    remaining = 1.0 - x;
  else
    throw Error("unknown learning-rate schedule", schedule.shape, "use cosine, linear or constant",
                ExitCode::kBadUsage);
  return schedule.minimum + (schedule.peak - schedule.minimum) * remaining;
}

}  // namespace mso
