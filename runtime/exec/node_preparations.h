// What the Slurm plugin prepared for this process: taken into use before anything is built.
#pragma once

#include "base/config.h"
#include "comm/world.h"

namespace mso {

// Collective. Where srun --mso was asked and a node lacks the plugin: an Error on all ranks that names it.
// Puts this thread on the compute CPUs, reads the memory slices, and compares the NVMe drives of all nodes:
// duplicates are an Error (kBadUsage) on all ranks with MSO_CHECK=prod, else a warning. Without the plugin's
// variables nothing of that happens; what holds in any case: driver, CUDA, NCCL, kernel and program of all ranks are
// compared, and a difference is refused (prod) or warned of (MSO_CHECK, else ero.check). In a job with --mso the hardware of
// every node is held against its needs (ero.needs, node/platform_needs.h) in the same way.
void adopt_node_preparations(World& world, const Config& config);

}  // namespace mso
