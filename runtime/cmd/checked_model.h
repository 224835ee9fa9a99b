// The model of a configuration for commands that look before a run starts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/config.h"

namespace mso {

// The model's Hugging Face configuration. What `mso train` refuses about model, tokenizer and template is refused here by
// the same check, where the data pipeline is in this build. Reads no weights and no data.
nlohmann::json checked_model(const Config& config);

}  // namespace mso
