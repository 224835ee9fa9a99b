// Named moments at which a test can have the process killed as if by `kill -9`:
// MSO_KILL_AT=<point>[:<count>][@<rank>] raises SIGKILL when `point` is passed the count-th time (default 1),
// on that rank or on any. Costs one load where the variable is not set.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace mso {

namespace kill_point_detail {
extern std::atomic<bool> armed;
void passed(std::string_view prefix, std::string_view name);
}  // namespace kill_point_detail

// "prefix" + "name" is the point's name (two parts so that a hot path builds no string).
inline void kill_point(std::string_view name, std::string_view prefix = {}) {
  if (kill_point_detail::armed.load(std::memory_order_relaxed)) kill_point_detail::passed(prefix, name);
}

// This process's rank, for "@<rank>". Until set, OMPI_COMM_WORLD_RANK, PMIX_RANK or SLURM_PROCID, else 0.
void set_kill_point_rank(int rank);

struct KillOrder {
  std::string point;
  long count = 1;
  int rank = -1;  // any
};
// Error (kBadUsage) where the text is not <point>[:<count>][@<rank>].
KillOrder parse_kill_order(const std::string& text);
// What MSO_KILL_AT orders; an empty point where it is not set. For start-up checks of the name.
KillOrder kill_order();
// Takes `text` in the variable's place ("" disarms) and starts counting anew. For tests that fork.
void set_kill_order(const std::string& text);

}  // namespace mso
