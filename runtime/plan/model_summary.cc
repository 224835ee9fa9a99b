#include "plan/model_summary.h"

#include <algorithm>

#include "model/hf_config.h"
#include "model/parameters.h"

namespace mso {

using nlohmann::json;

int64_t ModelSummary::parameters() const {
  int64_t sum = 0;
  for (const StageSummary& stage : stages) sum += stage.parameters;
  return sum;
}

int64_t ModelSummary::trainable_parameters() const {
  int64_t sum = 0;
  for (const StageSummary& stage : stages) sum += stage.trainable_parameters;
  return sum;
}

ModelSummary summarise_llava(const json& config, const std::vector<std::string>& freeze) {
  const LlavaConfig model = parse_llava_config(config.dump(), "config");
  const ClipVisionConfig& v = model.vision;
  const LlamaConfig& t = model.text;
  const std::vector<ParameterSpec> parameters = llava_parameters(model);
  const std::vector<bool> frozen = frozen_parameters(parameters, freeze);

  ModelSummary summary;
  summary.family = "llava";
  summary.vocabulary = t.vocab_size;
  summary.image_size = v.image_size;
  summary.image_positions = model.positions_per_image();
  summary.frame_positions = model.positions_per_frame();
  summary.audio_positions = model.audio ? model.audio->positions_per_clip() : 0;
  std::vector<std::string> names = {"vision_encoder", "projector"};
  if (model.audio) names.insert(names.end(), {"audio_encoder", "audio_projector"});
  names.push_back("llm_decoder");
  summary.stages.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) summary.stages[i].name = names[i];
  auto of_stage = [&](const char* name) -> StageSummary& {
    return *std::ranges::find(summary.stages, name, &StageSummary::name);
  };
  of_stage("projector").inputs = {"vision_encoder"};
  of_stage("llm_decoder").inputs = {"projector"};
  if (model.audio) {
    of_stage("audio_projector").inputs = {"audio_encoder"};
    of_stage("llm_decoder").inputs.push_back("audio_projector");
  }
  StageSummary &vision = of_stage("vision_encoder"), &projector = of_stage("projector"), &decoder = of_stage("llm_decoder");

  double vision_flops = 0, audio_flops = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[i];
    StageSummary& stage = of_stage(parameter.stage.c_str());
    const int64_t count = parameter.count();
    stage.parameters += count;
    if (!frozen[i]) stage.trainable_parameters += count;
    // Each weight of a matrix is one multiply-add a position; embeddings are looked up.
    const bool matrix = parameter.shape.size() >= 2 && !parameter.name.ends_with("embed_tokens.weight") &&
                        !parameter.name.ends_with("position_embedding.weight") && !parameter.constant;
    if (!matrix || !parameter.used) continue;
    const double flops = 2.0 * static_cast<double>(count);
    if (parameter.stage == "vision_encoder")
      vision_flops += flops;
    else if (parameter.stage == "audio_encoder")
      // The first convolution works on twice as many rows as come out of the second.
      audio_flops += parameter.name.ends_with("conv1.weight") ? 2 * flops : flops;
    else
      stage.flops_per_position += flops;
  }
  if (t.tie_word_embeddings) decoder.flops_per_position += 2.0 * static_cast<double>(t.vocab_size * t.hidden_size);

  // Attention reads all positions of an image: two products of `hidden` for each pair.
  const int64_t inner = v.patches() + 1, layers_run = model.vision_layers_run();
  const auto features = static_cast<int64_t>(model.vision_feature_layers.size());
  vision_flops +=
      static_cast<double>(layers_run) * 4.0 * static_cast<double>(inner) * static_cast<double>(v.hidden_size);
  const int64_t fewest =
      model.video ? std::min(summary.image_positions, summary.frame_positions) : summary.image_positions;
  const double per_position = static_cast<double>(inner) / static_cast<double>(fewest);
  vision.flops_per_position = vision_flops * per_position;

  // What autograd keeps of a layer: inputs of norms and products, q, k, v, the attention's output, the
  // activation's input and output.
  auto ceil_to = [](double x) { return static_cast<int64_t>(x + 0.999999); };
  const int64_t vision_layer = 8 * v.hidden_size + 2 * v.intermediate_size;
  const int64_t text_layer =
      4 * t.hidden_size + 2 * t.num_attention_heads * t.head_dim + 2 * t.num_key_value_heads * t.head_dim + 3 * t.intermediate_size;
  vision.activation_elements =
      ceil_to(static_cast<double>(layers_run * vision_layer + v.hidden_size) * per_position);
  vision.recomputed_elements =
      ceil_to(static_cast<double>(layers_run * v.hidden_size + vision_layer) * per_position);
  projector.activation_elements = features * v.hidden_size + 2 * t.hidden_size;
  projector.recomputed_elements = projector.activation_elements;
  // Logits and their gradient, as if every position had a label.
  const int64_t head = 2 * t.hidden_size + 2 * t.vocab_size;
  decoder.activation_elements = t.num_hidden_layers * text_layer + head;
  decoder.recomputed_elements = t.num_hidden_layers * t.hidden_size + text_layer + head;
  if (model.audio) {
    const AudioConfig& a = *model.audio;
    StageSummary &audio = of_stage("audio_encoder"), &audio_projector = of_stage("audio_projector");
    const double rows = static_cast<double>(a.max_source_positions) / static_cast<double>(summary.audio_positions);
    audio_flops += 4.0 * static_cast<double>(a.encoder_layers * a.max_source_positions * a.d_model);
    audio.flops_per_position = audio_flops * rows;
    // Of the convolutions: windows of three rows and what comes out, the first on twice as many rows.
    const int64_t convolutions = 2 * (3 * a.num_mel_bins + a.d_model) + 3 * a.d_model + a.d_model;
    const int64_t layer = 8 * a.d_model + 2 * a.encoder_ffn_dim;
    audio.activation_elements = ceil_to(static_cast<double>(convolutions + a.encoder_layers * layer + a.d_model) * rows);
    audio.recomputed_elements =
        ceil_to(static_cast<double>(a.encoder_layers * a.d_model + std::max(layer, convolutions) + a.d_model) * rows);
    audio_projector.activation_elements = audio_projector.recomputed_elements = a.d_model + t.hidden_size;
  }
  return summary;
}

}  // namespace mso
