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
  for (const char* name : {"vision_encoder", "projector", "llm_decoder"})
    summary.stages.emplace_back().name = name;

  double vision_flops = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[i];
    StageSummary& stage = *std::ranges::find(summary.stages, parameter.stage, &StageSummary::name);
    const int64_t count = parameter.count();
    stage.parameters += count;
    if (!frozen[i]) stage.trainable_parameters += count;
    // Each weight of a matrix is one multiply-add a position; embeddings are looked up.
    const bool matrix = parameter.shape.size() >= 2 && !parameter.name.ends_with("embed_tokens.weight") &&
                        !parameter.name.ends_with("position_embedding.weight");
    if (!matrix || !parameter.used) continue;
    const double flops = 2.0 * static_cast<double>(count);
    if (parameter.stage == "vision_encoder")
      vision_flops += flops;
    else
      stage.flops_per_position += flops;
  }
  if (t.tie_word_embeddings) summary.stages[2].flops_per_position += 2.0 * static_cast<double>(t.vocab_size * t.hidden_size);

  // Attention reads all positions of an image: two products of `hidden` for each pair.
  const int64_t inner = v.patches() + 1, layers_run = model.vision_layers_run();
  const auto features = static_cast<int64_t>(model.vision_feature_layers.size());
  vision_flops +=
      static_cast<double>(layers_run) * 4.0 * static_cast<double>(inner) * static_cast<double>(v.hidden_size);
  const double per_position = static_cast<double>(inner) / static_cast<double>(summary.image_positions);
  summary.stages[0].flops_per_position = vision_flops * per_position;

  // What autograd keeps of a layer: inputs of norms and products, q, k, v, the attention's output, the
  // activation's input and output.
  auto ceil_to = [](double x) { return static_cast<int64_t>(x + 0.999999); };
  const int64_t vision_layer = 8 * v.hidden_size + 2 * v.intermediate_size;
  const int64_t text_layer =
      4 * t.hidden_size + 2 * t.num_attention_heads * t.head_dim + 2 * t.num_key_value_heads * t.head_dim + 3 * t.intermediate_size;
  summary.stages[0].activation_elements =
      ceil_to(static_cast<double>(layers_run * vision_layer + v.hidden_size) * per_position);
  summary.stages[0].recomputed_elements =
      ceil_to(static_cast<double>(layers_run * v.hidden_size + vision_layer) * per_position);
  summary.stages[1].activation_elements = features * v.hidden_size + 2 * t.hidden_size;
  summary.stages[1].recomputed_elements = summary.stages[1].activation_elements;
  // Logits and their gradient, as if every position had a label.
  const int64_t head = 2 * t.hidden_size + 2 * t.vocab_size;
  summary.stages[2].activation_elements = t.num_hidden_layers * text_layer + head;
  summary.stages[2].recomputed_elements = t.num_hidden_layers * t.hidden_size + text_layer + head;
  return summary;
}

}  // namespace mso
