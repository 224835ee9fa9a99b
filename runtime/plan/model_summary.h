// Sizes and costs of a model, from its Hugging Face configuration alone: what planning needs, without
// building it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mso {

// Per packed position: a position of the micro-batch, media positions included. An encoder's costs are per position it
// gives to the decoder (a vision encoder's those of an image, or of a video frame where the model takes video, which costs
// more), so that a batch made of its medium alone is the worst case.
struct StageSummary {
  std::string name;
  int64_t parameters = 0, trainable_parameters = 0;
  double flops_per_position = 0;  // forward, multiply-add = 2; attention inside a sample not counted for text
  int64_t activation_elements = 0;  // kept for the backward pass, per position
  int64_t recomputed_elements = 0;  // the same with activation recomputation
  std::vector<std::string> inputs = {};  // stages whose output it reads; empty: media
  bool operator==(const StageSummary&) const = default;
};

struct ModelSummary {
  std::string family;
  std::vector<StageSummary> stages;  // in the order of the forward pass
  int64_t image_positions = 0;       // positions an image takes
  int64_t frame_positions = 0;       // positions a video frame takes; 0: no video
  int64_t audio_positions = 0;       // positions a sound takes; 0: no sound
  int64_t image_size = 0;            // pixels
  int64_t vocabulary = 0;

  int64_t parameters() const;
  int64_t trainable_parameters() const;
};

// Parameters that `freeze` selects (see base/glob.h) or that are unused are not trainable. A pattern that
// selects nothing is an Error (kBadUsage): nearly always a misspelling.
ModelSummary summarise_llava(const nlohmann::json& config, const std::vector<std::string>& freeze = {});

}  // namespace mso
