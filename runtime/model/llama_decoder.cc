#include "model/llama_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <numbers>

namespace mso {

// transformers' compute_default_rope_parameters, _compute_linear_scaling_rope_parameters,
// _compute_llama3_parameters
at::Tensor rotary_frequencies(const LlamaConfig& config) {
  const RopeConfig& rope = config.rope;
  at::Tensor exponent = at::arange(0, config.head_dim, 2, at::TensorOptions(at::kLong))
                            .to(at::kFloat)
                            .div(static_cast<double>(config.head_dim));
  at::Tensor inverse = at::pow(rope.theta, exponent).reciprocal();
  if (rope.type == "linear") return inverse / rope.factor;
  if (rope.type != "llama3") return inverse;
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double low = context / rope.low_freq_factor, high = context / rope.high_freq_factor;
  at::Tensor wavelength = inverse.reciprocal() * (2 * std::numbers::pi);
  at::Tensor scaled = at::where(wavelength > low, inverse / rope.factor, inverse);
  at::Tensor smooth = (wavelength.reciprocal() * context - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  at::Tensor smoothed = (1 - smooth) * scaled / rope.factor + smooth * scaled;
  at::Tensor medium = (wavelength < high).logical_not() * (wavelength > low).logical_not();
  return at::where(medium, smoothed, scaled);
}

LlmDecoder::LlmDecoder(const LlamaConfig& config, const FlatParameters& parameters, bool recompute)
    : Stage({"llm_decoder", {"projector"}, false, false, 0, 0}), config_(config), recompute_(recompute) {
  const std::string root = "language_model.model.";
  embedding_ = parameters.find(root + "embed_tokens.weight");
  final_norm_ = NormWeights(parameters, root + "norm", config.rms_norm_eps, false);
  attention_ = {config.num_attention_heads, config.num_key_value_heads, config.head_dim, true};
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = root + "layers." + std::to_string(i) + ".", attention = name + "self_attn.",
                      mlp = name + "mlp.";
    Layer layer;
    layer.norm1 = NormWeights(parameters, name + "input_layernorm", config.rms_norm_eps, false);
    layer.norm2 = NormWeights(parameters, name + "post_attention_layernorm", config.rms_norm_eps, false);
    layer.qkv = LinearWeights(parameters, {attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                              config.attention_bias);
    layer.out = LinearWeights(parameters, {attention + "o_proj"}, config.attention_bias);
    layer.gate_up = LinearWeights(parameters, {mlp + "gate_proj", mlp + "up_proj"}, config.mlp_bias);
    layer.down = LinearWeights(parameters, {mlp + "down_proj"}, config.mlp_bias);
    layer.trainable = layer.norm1.trainable() || layer.norm2.trainable() || layer.qkv.trainable() ||
                      layer.out.trainable() || layer.gate_up.trainable() || layer.down.trainable();
    layers_.push_back(std::move(layer));
  }
  const int64_t count = static_cast<int64_t>(layers_.size());
  if (!embedding_.trainable())
    while (lowest_ < count && !layers_[lowest_].trainable) ++lowest_;
  info_.trainable = embedding_.trainable() || lowest_ < count || final_norm_.trainable();
}

std::pair<at::Tensor, at::Tensor> LlmDecoder::layer_forward(const Layer& layer, const at::Tensor& input,
                                                            const at::Tensor& delta, const StageBatch& batch,
                                                            const at::Tensor& rows, LayerKept* kept) const {
  NormResult norm1 = norm(input, delta, layer.norm1);
  at::Tensor qkv = linear(norm1.y, layer.qkv);
  rotary(qkv, attention_.heads + attention_.kv_heads, attention_.head_dim, batch.cos, batch.sin, false);
  AttentionResult attended = attention(qkv, batch.lengths, attention_);
  at::Tensor attended_rows = rows.defined() ? attended.out.index_select(0, rows) : attended.out;
  NormResult norm2 = norm(linear(attended_rows, layer.out),
                          rows.defined() ? norm1.sum.index_select(0, rows) : norm1.sum, layer.norm2);
  at::Tensor gate_up = linear(norm2.y, layer.gate_up);
  at::Tensor down = linear(swiglu(gate_up), layer.down);
  at::Tensor sum = norm2.sum;
  if (kept != nullptr)
    *kept = {std::move(norm1),   std::move(norm2),    std::move(qkv),
             std::move(gate_up), std::move(attended), std::move(attended_rows)};
  return {sum, down};
}

void LlmDecoder::layer_backward(const Layer& layer, LayerKept& kept, at::Tensor& gradient,
                                const StageBatch& batch, const at::Tensor& rows, GradientSink& sink) const {
  at::Tensor grad = linear_input_gradient(gradient, layer.down);
  swiglu_backward(grad, kept.gate_up);  // grad is now the input of down, gate_up its gradient
  linear_weight_gradient(gradient, grad, layer.down, sink);
  linear_weight_gradient(kept.gate_up, kept.norm2.y, layer.gate_up, sink);
  norm_backward(linear_input_gradient(kept.gate_up, layer.gate_up), kept.norm2, layer.norm2, gradient, sink);

  linear_weight_gradient(gradient, kept.attended_rows, layer.out, sink);
  at::Tensor grad_attended = linear_input_gradient(gradient, layer.out);
  if (rows.defined()) {
    auto to_all = [&](const at::Tensor& some) {
      return at::zeros({batch.tokens.size(0), some.size(1)}, some.options()).index_copy_(0, rows, some);
    };
    grad_attended = to_all(grad_attended);
    gradient = to_all(gradient);
  }
  at::Tensor grad_qkv =
      attention_backward(grad_attended, kept.qkv, kept.attention, batch.lengths, attention_);
  rotary(grad_qkv, attention_.heads + attention_.kv_heads, attention_.head_dim, batch.cos, batch.sin, true);
  linear_weight_gradient(grad_qkv, kept.norm1.y, layer.qkv, sink);
  norm_backward(linear_input_gradient(grad_qkv, layer.qkv), kept.norm1, layer.norm1, gradient, sink);
}

at::Tensor LlmDecoder::forward(const StageBatch& batch, const at::Tensor& input,
                               std::unique_ptr<Kept>* kept) {
  auto all = kept != nullptr ? std::make_unique<AllKept>() : nullptr;
  at::Tensor sum = embedding_.value.index_select(0, batch.tokens), delta;
  if (input.defined()) sum.index_copy_(0, batch.media_positions, input);
  if (all) {
    all->layers.resize(layers_.size());
    all->media.assign(static_cast<size_t>(sum.size(0)), false);
    if (input.defined())
      for (int64_t i = 0; i < batch.media_positions.size(0); ++i)
        all->media[static_cast<size_t>(batch.media_positions.const_data_ptr<int64_t>()[i])] = true;
  }
  const int64_t lowest = input.defined() && batch.media_gradient ? 0 : lowest_;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor rows = i + 1 == layers_.size() ? batch.rows : at::Tensor();
    const bool keep = all && static_cast<int64_t>(i) >= lowest;
    if (keep && recompute_) {
      if (delta.defined()) sum = sum + delta, delta = at::Tensor();
      all->layers[i].norm1.sum = sum;
    }
    std::tie(sum, delta) =
        layer_forward(layers_[i], sum, delta, batch, rows, keep && !recompute_ ? &all->layers[i] : nullptr);
  }
  NormResult last = norm(sum, delta, final_norm_);
  at::Tensor result = last.y;
  if (all) {
    last.y = at::Tensor();
    all->final_norm = std::move(last);
    *kept = std::move(all);
  }
  return result;
}

at::Tensor LlmDecoder::backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                                bool want_input_gradient, GradientSink& sink) {
  auto& all = static_cast<AllKept&>(*kept);
  at::Tensor flow = at::zeros(gradient.sizes(), gradient.options());
  norm_backward(gradient, all.final_norm, final_norm_, flow, sink);
  const int64_t lowest = want_input_gradient ? 0 : lowest_;
  for (int64_t i = static_cast<int64_t>(layers_.size()) - 1; i >= lowest; --i) {
    const at::Tensor rows = i + 1 == static_cast<int64_t>(layers_.size()) ? batch.rows : at::Tensor();
    LayerKept layer = std::move(all.layers[i]);
    if (recompute_) {
      at::Tensor input = layer.norm1.sum;
      layer_forward(layers_[i], input, {}, batch, rows, &layer);
    }
    layer_backward(layers_[i], layer, flow, batch, rows, sink);
  }
  if (embedding_.trainable())
    embedding_gradient(flow, batch.tokens.const_data_ptr<int64_t>(), all.media, embedding_.gradient);
  sink.ready(embedding_.index);
  return want_input_gradient ? flow.index_select(0, batch.media_positions) : at::Tensor();
}

}  // namespace mso
