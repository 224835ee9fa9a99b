#include "exec/model_setup.h"

#include "base/model_config.h"
#include "io/media_decoder.h"

namespace mso {

ModelOptions model_options(const Config& config, const Tokenizer& tokenizer) {
  ModelOptions options;
  options.path = config.model.path;
  nlohmann::json json = hugging_face_config(config.model);
  auto token = [&](const std::string& medium, bool wanted) {
    const std::string index = medium + "_token_index";
    if (!wanted || json.contains(index)) return;
    if (const auto id = tokenizer.token_id("<" + medium + ">")) json[index] = *id;
  };
  token("image", true);
  token("video", json.contains("video_frames"));
  token("audio", json.contains("audio_config") && !json["audio_config"].is_null());
  options.config_json = json.dump();
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

ModelInputs check_model_inputs(const Config& config) {
  if (config.train.device == "cuda")
    throw Error("train.device: cuda is not available yet", "training runs on CPU ranks", "use auto or cpu", ExitCode::kBadUsage);
  (void)hugging_face_config(config.model);  // no model at all is told before its tokenizer is missed
  ModelInputs inputs;
  inputs.tokenizer = make_tokenizer(config);
  inputs.options = model_options(config, *inputs.tokenizer);
  inputs.model = model_config(inputs.options);
  const LlavaConfig& model = inputs.model;
  if (inputs.tokenizer->vocabulary_size() > model.text.vocab_size)
    throw Error("the tokenizer has more tokens than the model's vocabulary",
                std::to_string(inputs.tokenizer->vocabulary_size()) + " > " + std::to_string(model.text.vocab_size),
                "raise model.text.vocab_size", ExitCode::kBadUsage);
  inputs.processor = image_processor_config(config, model);
  AssemblerOptions& samples = inputs.samples;
  samples.text_template = config.data.prompt_template;
  samples.caption = config.data.caption;
  samples.image_token = model.image_token_index;
  samples.max_length = config.data.max_length;
  if (config.model.tokenizer == "bytes" || (config.model.tokenizer == "auto" && config.model.path.empty()))
    samples.bytes_per_token = 1;
  if (model.video)
    inputs.media[Modality::kVideo] = make_video_decoder(inputs.processor, model.video->frames, model.positions_per_frame(),
                                                        model.video_token_index);
  if (model.audio)
    inputs.media[Modality::kAudio] = make_audio_decoder(model.audio->num_mel_bins, model.audio->mel_frames(),
                                                        model.audio->positions_per_clip(), model.audio_token_index);
  SampleAssembler(nullptr, inputs.tokenizer, PictureDecoder(), samples, inputs.media);  // refuses a wrong template
  return inputs;
}

}  // namespace mso
