// The parameters of a model as plain data: name, stage, shape, how they start; which are frozen; and their
// values, from a seed or from safetensors. No torch here, so that plans, listings and exports need none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "comm/flat_layout.h"
#include "model/hf_config.h"

namespace mso {

struct ParameterSpec {
  std::string name;   // logical (hub) name
  std::string stage;  // "vision_encoder", "projector", "audio_encoder", "audio_projector", "llm_decoder"
  std::vector<int64_t> shape;
  enum class Start { kNormal, kZeros, kOnes, kSinusoids } start = Start::kNormal;
  double std = 0.02;  // of kNormal
  bool used =
      true;  // false: no output depends on it (vision layers past the last feature layer); kept and exported
  bool constant = false;  // never trained though outputs depend on it (Whisper's positions)

  int64_t count() const {
    int64_t product = 1;
    for (int64_t extent : shape) product *= extent;
    return product;
  }
};

// All parameters of a LLaVA, with those of its sound where it has any, in the order of the forward pass, with the initial
// distributions of transformers.
// Matrices that are multiplied with the same input lie side by side (q, k, v; gate, up).
// init_std > 0 replaces initializer_range of projectors and decoder.
std::vector<ParameterSpec> llava_parameters(const LlavaConfig& config, double init_std = 0);

// Which parameters are frozen by `patterns` (see base/glob.h). A pattern that
// matches nothing is an Error naming it. Unused and constant parameters are frozen in any case.
std::vector<bool> frozen_parameters(const std::vector<ParameterSpec>& specs,
                                    const std::vector<std::string>& patterns);

// Layouts of the trainable and of the frozen parameters.
struct ParameterLayouts {
  FlatLayout trainable, frozen;
};
ParameterLayouts split_layouts(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen);

// Initial value: element i is a pure function of (seed, name, i), so it does not depend on rank, layout or
// order.
void initialise(const ParameterSpec& spec, uint64_t seed, float* out);

// Which tensor of a model folder each of `layouts` is: logical name to name in the files. Missing, additional or wrongly
// shaped tensors are Errors that name them and the file. `tied`: a language_model.lm_head.weight in the file is not read.
std::map<std::string, std::string> match_parameters(const SafetensorsFolder& folder, const ParameterLayouts& layouts,
                                                    bool tied);

// Fills the flat buffers of `layouts` from a model folder, with the errors of match_parameters(). A null buffer is left out.
void load_parameters(const SafetensorsFolder& folder, const ParameterLayouts& layouts, bool tied,
                     float* trainable, float* frozen);

}  // namespace mso
