#include "exec/model_setup.h"

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/model_config.h"
#include "io/built_in_chat.h"
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

std::optional<ChatTemplate> chat_template(const Config& config, const Tokenizer& tokenizer,
                                          const MediaPlaceholders& placeholders, std::string* missing) {
  namespace fs = std::filesystem;
  const std::string& where = config.data.chat_template;
  const std::string key = "data.chat_template: " + where;
  auto with_tokens = [&](const std::string& source, const std::string& name) {
    ChatTemplate made(source, name, tokenizer.config_text());
    for (const auto& [variable, id] : {std::pair("bos_token", tokenizer.bos_id()), {"eos_token", tokenizer.eos_id()}})
      if (const auto token = id ? tokenizer.token(*id) : std::nullopt) made.set_variable(variable, *token);
    return made;
  };
  std::error_code ignored;
  if (where != "auto") {
    if (const auto built_in = built_in_chat_template(where, placeholders)) return with_tokens(*built_in, where);
    if (fs::is_directory(where, ignored)) return ChatTemplate::load(where);
    if (!fs::is_regular_file(where, ignored))
      throw Error("no such chat template", key, "auto, llava_v1, chatml, plain, a Jinja file, or a folder with one", ExitCode::kBadUsage);
    return with_tokens(read_file(where, 1 << 20), where);
  }
  try {
    for (const std::string& folder : {config.model.path, config.model.tokenizer})
      if (fs::is_directory(folder, ignored) && ChatTemplate::find(folder)) return ChatTemplate::load(folder);
    if (auto found = ChatTemplate::of_config(tokenizer.config_text(), "the tokenizer's tokenizer_config.json")) return found;
    *missing = key + ": " + (config.model.path.empty() ? "the tokenizer" : config.model.path) + " has none";
  } catch (const Error& error) {
    *missing = key + ": " + error.what();
  }
  return {};
}

std::string model_files(const Config& config, const Tokenizer& tokenizer, const ConversationEncoder* conversations) {
  namespace fs = std::filesystem;
  nlohmann::json files;
  std::map<std::string, std::string> templates;
  std::error_code ignored;
  for (const std::string& folder : {config.model.path, config.model.tokenizer})
    if (templates.empty()) templates = ChatTemplate::all(folder, "");
  if (templates.empty()) templates = ChatTemplate::all("", tokenizer.config_text());
  if (conversations) templates["default"] = conversations->chat_template().source();
  if (!templates.empty()) files["chat_templates"] = templates;
  if (const fs::path file = fs::path(config.model.path) / "generation_config.json"; !config.model.path.empty() && fs::exists(file, ignored)) {
    try {
      if (const auto read = parse_shallow_json(read_file(file, 1 << 20)); read.is_object()) files["generation_config"] = read;
    } catch (const nlohmann::json::exception& error) {
      log_warn("{} will not be exported: {}", file.string(), error.what());
    }
  }
  return files.is_null() ? "{}" : files.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<AlignmentRule> alignment_rule(const Config& config, const LlavaConfig& model, const std::string& modality) {
  const AlignmentsConfig& all = config.data.alignment;
  const AlignmentConfig& wanted = modality == "video" ? all.video : modality == "audio" ? all.audio : all.signal;
  const std::string key = "data.alignment." + modality;
  auto refuse = [&](const std::string& what, const std::string& hint) {
    return Error(what, key + ".length: " + std::to_string(wanted.length), hint, ExitCode::kBadUsage);
  };
  if (wanted.length == 0) {
    for (const auto& [set, leaf] : {std::pair(wanted.rule != "auto", ".rule"), {wanted.value != 0, ".value"}})
      if (set) throw Error("an alignment without a length", key + leaf, "set " + key + ".length, or leave it out", ExitCode::kBadUsage);
    return {};
  }
  if (modality == "signal") throw refuse("no model family takes signals", "leave it out");
  if ((modality == "video" && !model.video) || (modality == "audio" && !model.audio))
    throw refuse("the model takes no " + modality, "leave it out, or give the model model." + modality);
  AlignmentRule rule = default_alignment(modality);
  rule.length = wanted.length;
  rule.value = static_cast<float>(wanted.value);
  if (wanted.rule != "auto") rule.method = alignment_method(wanted.rule, key + ".rule");
  if (rule.method == AlignmentRule::Method::kPad) rule.longer = AlignmentRule::Longer::kTruncate;
  check_alignment(rule, key);
  if (modality == "audio" && rule.length != model.audio->mel_frames())
    throw refuse("the audio encoder reads " + std::to_string(model.audio->mel_frames()) + " frames", "give this length");
  return rule;
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
  samples.drop_over_length = config.data.over_length == "drop";
  if (config.model.tokenizer == "bytes" || (config.model.tokenizer == "auto" && config.model.path.empty()))
    samples.bytes_per_token = 1;
  if (model.video)
    inputs.media[Modality::kVideo] = make_video_decoder(inputs.processor, model.video->frames, model.positions_per_frame(),
                                                        model.video_token_index, alignment_rule(config, model, "video"),
                                                        open_video_device(video_backend(config.data.video_decoder)));
  if (model.audio)
    inputs.media[Modality::kAudio] = make_audio_decoder(model.audio->num_mel_bins, model.audio->mel_frames(),
                                                        model.audio->positions_per_clip(), model.audio_token_index,
                                                        alignment_rule(config, model, "audio"));
  for (const char* modality : {"video", "audio", "signal"}) (void)alignment_rule(config, model, modality);  // for what the model lacks
  ConversationOptions chat;
  auto token = [&](int64_t id) { return id < 0 ? std::string() : inputs.tokenizer->token(id).value_or(""); };
  chat.placeholders = {token(model.image_token_index), model.video ? token(model.video_token_index) : "",
                       model.audio ? token(model.audio_token_index) : ""};
  chat.max_length = config.data.max_length;
  if (!samples.drop_over_length) chat.too_long = ConversationOptions::TooLong::kCut;
  chat.add_bos = true;
  if (auto made = chat_template(config, *inputs.tokenizer, chat.placeholders, &samples.no_conversations))
    samples.conversations = std::make_shared<const ConversationEncoder>(inputs.tokenizer, std::move(*made), chat);
  SampleAssembler(nullptr, inputs.tokenizer, PictureDecoder(), samples, inputs.media);  // refuses a wrong template
  return inputs;
}

}  // namespace mso
