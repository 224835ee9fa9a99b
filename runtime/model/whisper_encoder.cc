#include "model/whisper_encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>

#include "model/pool_grid.h"

namespace mso {

namespace {

// rows [clips · length, width] → [clips · length / stride, 3 · width]: every stride-th row with its two neighbours, zeros
// beyond both ends of a clip.
at::Tensor windows_of(const at::Tensor& rows, int64_t length, int64_t stride) {
  const int64_t width = rows.size(1), clips = rows.size(0) / length, outputs = length / stride;
  at::Tensor windows = at::empty({clips * outputs, 3 * width}, rows.options());
  const size_t bytes = static_cast<size_t>(width) * rows.element_size();
  const char* from = static_cast<const char*>(rows.data_ptr());
  char* to = static_cast<char*>(windows.data_ptr());
  for (int64_t clip = 0; clip < clips; ++clip)
    for (int64_t t = 0; t < outputs; ++t)
      for (int64_t k = -1; k <= 1; ++k, to += bytes) {
        const int64_t source = t * stride + k;
        if (source < 0 || source >= length)
          std::memset(to, 0, bytes);
        else
          std::memcpy(to, from + static_cast<size_t>(clip * length + source) * bytes, bytes);
      }
  return windows;
}

// The gradient of rows from that of their windows. A row is in up to three windows; each of the three places is added as
// a whole, always in the same order.
at::Tensor windows_backward(const at::Tensor& gradient, int64_t length, int64_t stride) {
  const int64_t width = gradient.size(1) / 3, outputs = length / stride, clips = gradient.size(0) / outputs;
  at::Tensor rows = at::zeros({clips, length, width}, gradient.options());
  const at::Tensor places = gradient.view({clips, outputs, 3, width});
  for (int64_t k = -1; k <= 1; ++k) {
    // Windows from `first` on reach into the clip at this place; the last one of stride 1 does not for k = 1.
    const int64_t first = k < 0 ? 1 : 0, end = (length - 1 - k) / stride + 1;
    const int64_t count = std::min(end, outputs) - first;
    if (count <= 0) continue;
    rows.slice(1, first * stride + k, (first + count - 1) * stride + k + 1, stride)
        .add_(places.narrow(1, first, count).select(2, k + 1));
  }
  return rows.view({clips * length, width});
}

}  // namespace

WhisperEncoder::WhisperEncoder(const AudioConfig& config, const FlatParameters& parameters, bool recompute)
    : Stage({"audio_encoder", {}, true, false, 0, 0}), config_(config), recompute_(recompute) {
  const std::string root = "audio_tower.";
  conv1_ = {parameters.find(root + "conv1.weight"), parameters.find(root + "conv1.bias"), 1};
  conv2_ = {parameters.find(root + "conv2.weight"), parameters.find(root + "conv2.bias"), 2};
  positions_ = parameters.find(root + "embed_positions.weight");
  last_norm_ = NormWeights(parameters, root + "layer_norm", 1e-5, true);
  const EncoderLayerForm form{"self_attn_layer_norm", "final_layer_norm", "fc1", "fc2", false, 1e-5, Activation::kGelu,
                              {config.encoder_attention_heads, config.encoder_attention_heads,
                               config.d_model / config.encoder_attention_heads, false}};
  for (int64_t i = 0; i < config.encoder_layers; ++i)
    layers_.emplace_back(parameters, root + "layers." + std::to_string(i) + ".", form);
  embeddings_trainable_ = conv1_.trainable() || conv2_.trainable();
  const int64_t count = static_cast<int64_t>(layers_.size());
  if (!embeddings_trainable_)
    while (lowest_ < count && !layers_[lowest_].trainable()) ++lowest_;
  info_.trainable = embeddings_trainable_ || lowest_ < count || last_norm_.trainable();
}

at::Tensor WhisperEncoder::Convolution::matrix() const {
  return weight.value.transpose(1, 2).reshape({weight.value.size(0), -1});
}

at::Tensor WhisperEncoder::convolve(const Convolution& conv, const at::Tensor& windows) const {
  return at::addmm(conv.bias.value, windows, conv.matrix().t());
}

// The bias's gradient is formed with GELU's.
void WhisperEncoder::convolution_gradient(const Convolution& conv, const at::Tensor& gradient,
                                          const at::Tensor& windows, GradientSink& sink) const {
  if (conv.weight.trainable()) {
    const int64_t out = conv.weight.value.size(0), in = conv.weight.value.size(1);
    at::Tensor sum = conv.weight.gradient;  // float32 whatever the compute type
    sum.add_(at::mm(gradient.t(), windows).view({out, 3, in}).transpose(1, 2));
  }
  sink.ready(conv.bias.index);
  sink.ready(conv.weight.index);
}

at::Tensor WhisperEncoder::embed(const at::Tensor& sound, AllKept* kept) const {
  const int64_t clips = sound.size(0), frames = sound.size(2), d = config_.d_model;
  at::Tensor rows = sound.transpose(1, 2).contiguous().view({clips * frames, config_.num_mel_bins});
  at::Tensor windows1 = windows_of(rows, frames, 1);
  at::Tensor conv1 = convolve(conv1_, windows1);
  at::Tensor windows2 = windows_of(activate(conv1, Activation::kGelu), frames, 2);
  at::Tensor conv2 = convolve(conv2_, windows2);
  at::Tensor result = activate(conv2, Activation::kGelu);
  result.view({clips, config_.max_source_positions, d}).add_(positions_.value.unsqueeze(0));
  if (kept != nullptr) {
    kept->windows1 = std::move(windows1);
    kept->conv1 = std::move(conv1);
    kept->windows2 = std::move(windows2);
    kept->conv2 = std::move(conv2);
  }
  return result;
}

void WhisperEncoder::embed_backward(at::Tensor gradient, AllKept& kept, int64_t clips, GradientSink& sink) const {
  activate_backward(gradient, kept.conv2, Activation::kGelu, conv2_.bias.gradient);  // conv2 is now its gradient
  convolution_gradient(conv2_, kept.conv2, kept.windows2, sink);
  if (!conv1_.trainable()) return;
  at::Tensor grad = windows_backward(at::mm(kept.conv2, conv2_.matrix()), kept.conv1.size(0) / clips, 2);
  activate_backward(grad, kept.conv1, Activation::kGelu, conv1_.bias.gradient);
  convolution_gradient(conv1_, kept.conv1, kept.windows1, sink);
}

at::Tensor WhisperEncoder::forward(const StageBatch& batch, const at::Tensor&, std::unique_ptr<Kept>* kept) {
  const std::vector<int64_t> lengths(static_cast<size_t>(batch.sound.size(0)), config_.max_source_positions);
  auto all = kept != nullptr && info_.trainable ? std::make_unique<AllKept>() : nullptr;
  if (all) all->layers.resize(layers_.size());
  at::Tensor sum = embed(batch.sound, all && embeddings_trainable_ && !recompute_ ? all.get() : nullptr), delta;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool keep = all && static_cast<int64_t>(i) >= lowest_;
    if (keep && recompute_) {
      if (delta.defined()) sum = sum + delta, delta = at::Tensor();
      all->layers[i].norm1.sum = sum;
    }
    std::tie(sum, delta) =
        layers_[i].forward(sum, delta, lengths, keep && !recompute_ ? &all->layers[i] : nullptr);
  }
  NormResult last = norm(pool_pairs(delta.defined() ? sum + delta : sum, config_.max_source_positions), {}, last_norm_);
  at::Tensor result = last.y;
  if (all) {
    last.y = at::Tensor();
    all->last_norm = std::move(last);
  }
  if (kept != nullptr) *kept = std::move(all);
  return result;
}

at::Tensor WhisperEncoder::backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient, bool,
                                    GradientSink& sink) {
  if (!info_.trainable) return {};
  auto& all = static_cast<AllKept&>(*kept);
  const int64_t clips = batch.sound.size(0);
  const std::vector<int64_t> lengths(static_cast<size_t>(clips), config_.max_source_positions);
  at::Tensor pooled = at::zeros_like(gradient);
  norm_backward(gradient, all.last_norm, last_norm_, pooled, sink);
  at::Tensor flow = pool_pairs_backward(pooled, config_.max_source_positions);
  for (int64_t i = static_cast<int64_t>(layers_.size()) - 1; i >= lowest_; --i) {
    EncoderLayer::Kept layer = std::move(all.layers[i]);
    if (recompute_) {
      at::Tensor input = layer.norm1.sum;
      layers_[i].forward(input, {}, lengths, &layer);
    }
    layers_[i].backward(layer, flow, lengths, sink);
  }
  if (!embeddings_trainable_) return {};
  if (recompute_) embed(batch.sound, &all);
  embed_backward(flow, all, clips, sink);
  return {};
}

}  // namespace mso
