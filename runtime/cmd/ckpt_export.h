// mso ckpt export: a state's weights as a folder that transformers loads.
#pragma once

#include <filesystem>
#include <string>

#include "ckpt/inspect.h"

namespace mso {

// `type`: float32 or bfloat16. Frozen parameters, which snapshots do not hold, come from the run's model.path or seed.
// Error where the state lacks a trained parameter; `folder` must not exist or be empty. Returns
// lines for the user on parts that transformers' LlavaForConditionalGeneration does not have (video, sound), or nothing.
std::string export_state(const StoredState& state, const std::filesystem::path& folder, const std::string& type);

}  // namespace mso
