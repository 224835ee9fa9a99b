// What `mso plan` shows, and the start-up log of a run: stages, memory, snapshot sizes against the free RAM
// disk.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "node/ram_disk.h"
#include "plan/estimate.h"
#include "plan/plan.h"

namespace mso {

struct PlanReport {
  ModelSummary model;
  Plan plan;
  MemoryEstimate memory;
  SnapshotSizes snapshots;
  RamDisk ram_disk;
  int64_t keep = 0, nodes = 1;
};

// Bytes level 0 needs on a node while it writes one generation more than it keeps.
int64_t level0_peak_bytes(const PlanReport& report);

std::string format_plan_report(const PlanReport& report);  // aligned tables with bars
nlohmann::json plan_report_json(const PlanReport& report);

}  // namespace mso
