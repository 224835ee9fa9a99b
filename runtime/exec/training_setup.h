// From a configuration to everything a run is made of: run folder, data, tokenizer, model, plan.
#pragma once

#include "base/config.h"
#include "comm/world.h"
#include "exec/trainer.h"

namespace mso {

// Collective. Checks that all ranks read the same configuration, opens (or with `fresh` moves aside) the run folder,
// counts this attempt, and builds data loader and model. Nothing is trained. An Error is thrown on all ranks alike
// where rank 0 found it.
TrainingParts set_up_training(World& world, const LoadedConfig& loaded, bool fresh);

}  // namespace mso
