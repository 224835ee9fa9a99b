#include "model/model_options.h"

#include "base/error.h"

namespace mso {

LlavaConfig model_config(const ModelOptions& options) {
  if (options.config_json.empty()) {
    if (options.path.empty())
      throw Error("no model", "neither model.path nor model.vision and model.text are set", "",
                  ExitCode::kBadUsage);
    return read_llava_config(options.path);
  }
  const bool from_folder = !options.path.empty();
  return parse_llava_config(options.config_json, from_folder ? options.path : "model", !from_folder);
}

ModelOutline outline_model(const ModelOptions& options) {
  ModelOutline outline;
  outline.config = model_config(options);
  outline.parameters = llava_parameters(outline.config, options.init_std);
  outline.frozen = frozen_parameters(outline.parameters, options.freeze);
  outline.layouts = split_layouts(outline.parameters, outline.frozen);
  return outline;
}

void check_weights(const ModelOptions& options, const ModelOutline& outline) {
  if (!options.path.empty())
    match_parameters(SafetensorsFolder(options.path), outline.layouts, outline.config.text.tie_word_embeddings);
}

void fill_parameters(const ModelOptions& options, const ModelOutline& outline, float* trainable,
                     float* frozen) {
  if (!options.path.empty()) {
    load_parameters(SafetensorsFolder(options.path), outline.layouts, outline.config.text.tie_word_embeddings,
                    trainable, frozen);
    return;
  }
  size_t next[2] = {0, 0};
  for (size_t i = 0; i < outline.parameters.size(); ++i) {
    const bool is_frozen = outline.frozen[i];
    const FlatLayout& layout = is_frozen ? outline.layouts.frozen : outline.layouts.trainable;
    const size_t offset = layout.tensors[next[is_frozen]++].offset;
    if (float* values = is_frozen ? frozen : trainable) initialise(outline.parameters[i], options.seed, values + offset);
  }
}

}  // namespace mso
