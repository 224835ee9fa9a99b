#include "exec/model_setup.h"

#include "base/model_config.h"

namespace mso {

ModelOptions model_options(const Config& config) {
  ModelOptions options;
  options.path = config.model.path;
  options.config_json = hugging_face_config(config.model).dump();
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.init_std = config.model.path.empty() ? config.model.init_std : 0;
  options.compute = config.train.precision == "bf16" ? ComputeType::kBF16 : ComputeType::kF32;
  options.recompute = config.model.activation_recomputation;
  options.freeze = config.model.freeze;
  return options;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config) {
  std::string where = config.model.tokenizer;
  if (where == "auto") where = config.model.path.empty() ? "bytes" : config.model.path;
  return load_tokenizer(where);
}

ImageProcessorConfig image_processor_config(const Config& config, const LlavaConfig& model) {
  const int64_t side = model.vision.image_size;
  auto refuse = [&](const std::string& what, const std::string& size, const std::string& hint) {
    throw Error(what, size + " instead of " + std::to_string(side), hint, ExitCode::kBadUsage);
  };
  if (config.data.image_size.value_or(side) != side)
    refuse("data.image_size differs from the model's", std::to_string(*config.data.image_size), "leave it out");
  ImageProcessorConfig processor = clip_image_processor(static_cast<int>(side));
  if (!config.model.path.empty()) read_image_processor(config.model.path, &processor);
  const ImageProcessor made(processor);
  if (made.height() != side || made.width() != side)
    refuse("the image processor gives another size than the vision tower reads",
           std::to_string(made.height()) + "x" + std::to_string(made.width()),
           "mend preprocessor_config.json in " + config.model.path);
  return processor;
}

}  // namespace mso
