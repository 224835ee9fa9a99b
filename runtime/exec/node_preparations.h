// What the Slurm plugin prepared for this process: taken into use before anything is built.
#pragma once

#include "comm/world.h"

namespace mso {

// Collective. Where srun --mso was asked and a node lacks the plugin: an Error on all ranks that names it.
// Puts this thread on the compute CPUs, reads the memory slices, and compares the NVMe drives of all nodes:
// duplicates are an Error (kBadUsage) on all ranks with MSO_CHECK=prod, else a warning. Without the plugin's
// variables nothing happens.
void adopt_node_preparations(World& world, double timeout_s);

}  // namespace mso
