// The Hugging Face config.json of the model to train: read from model.path, or composed from model.vision,
// model.text and model.audio. Without torch, so that `mso plan` needs no model.
#pragma once

#include <nlohmann/json.hpp>

#include "base/config.h"

namespace mso {

// In the form transformers writes: "model_type", "vision_config", "text_config", "vision_feature_layer"…;
// values of the model section that are set win over the file's. "image_token_index" (and those of video and audio) is
// absent where neither gives it. Video is asked for by "video_frames" or "video_token_index". Error (kBadUsage) where the folder has no usable config.json, the family differs, or nothing is
// given.
nlohmann::json hugging_face_config(const ModelConfig& model);

}  // namespace mso
