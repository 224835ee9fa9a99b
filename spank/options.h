// The plugin's options of srun, sbatch and salloc: registering them with Slurm, and what was typed.
#pragma once

#include "spank/slurm.h"
#include "spank/user_request.h"

namespace mso {

// In slurm_spank_init of srun, sbatch, salloc and slurmstepd, so that Slurm knows them wherever it may meet
// them.
void register_options(spank_t spank);

// What Slurm's parser has handed over so far in this process.
TypedOptions& typed_options();

}  // namespace mso
