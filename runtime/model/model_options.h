// What a model is built from: a Hugging Face configuration, weights or a seed, and how it computes. No torch
// here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/hf_config.h"
#include "model/parameters.h"

namespace mso {

// Precision a stage computes in. Master weights, gradients and optimizer state are float32 in any case.
enum class ComputeType { kF32, kBF16 };

struct ModelOptions {
  // Text of a Hugging Face config.json (see hugging_face_config() for what our configuration makes of it).
  // Empty: config.json of `path`.
  std::string config_json;
  // Folder with the weights: safetensors, one file or shards with an index. Empty: values from `seed`.
  std::string path;
  uint64_t seed = 0;    // of initial values
  double init_std = 0;  // > 0 replaces initializer_range of projector and decoder
  bool values = true;   // false: weights stay zero, fill_parameters() or a snapshot fills them
  ComputeType compute = ComputeType::kF32;
  bool recompute = false;           // keep only each layer's input and run its forward again during backward
  std::vector<std::string> freeze;  // stage names or patterns of parameter names, see base/glob.h
};

// The meaning of the options' config.json. Without a path (a model a person describes) unknown keys are
// Errors.
LlavaConfig model_config(const ModelOptions& options);

// What listings and plans need: everything but the values.
struct ModelOutline {
  LlavaConfig config;
  std::vector<ParameterSpec> parameters;
  std::vector<bool> frozen;
  ParameterLayouts layouts;
};
ModelOutline outline_model(const ModelOptions& options);

// Errors that fill_parameters() would find in options.path, from the files' headers alone: a weight that is missing, too
// much or of another shape.
void check_weights(const ModelOptions& options, const ModelOutline& outline);

// Writes initial values, or those of options.path, into flat buffers of outline.layouts. Without `trainable` (null) only
// the frozen ones.
void fill_parameters(const ModelOptions& options, const ModelOutline& outline, float* trainable,
                     float* frozen);

}  // namespace mso
