#include "model/clip_vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "model/pool_grid.h"

namespace mso {

VisionEncoder::VisionEncoder(const LlavaConfig& config, const FlatParameters& parameters, bool recompute)
    : Stage({"vision_encoder", {}, true, false, 0, 0}),
      config_(config.vision),
      states_(config.feature_states()),
      keep_class_token_(config.keep_class_token),
      recompute_(recompute),
      frame_pool_(config.video ? config.video->pool : 1) {
  const std::string root = "vision_tower.vision_model.";
  class_embedding_ = parameters.find(root + "embeddings.class_embedding");
  patch_embedding_ = parameters.find(root + "embeddings.patch_embedding.weight");
  position_embedding_ = parameters.find(root + "embeddings.position_embedding.weight");
  pre_norm_ = NormWeights(parameters, root + "pre_layrnorm", config_.layer_norm_eps, true);
  EncoderLayerForm form{"layer_norm1", "layer_norm2", "mlp.fc1", "mlp.fc2", true, config_.layer_norm_eps,
                        config_.hidden_act,
                        {config_.num_attention_heads, config_.num_attention_heads,
                         config_.hidden_size / config_.num_attention_heads, false}};
  for (int64_t i = 0; i < config.vision_layers_run(); ++i)
    layers_.emplace_back(parameters, root + "encoder.layers." + std::to_string(i) + ".", form);
  embeddings_trainable_ = class_embedding_.trainable() || patch_embedding_.trainable() ||
                          position_embedding_.trainable() || pre_norm_.trainable();
  info_.trainable = embeddings_trainable_;
  if (!embeddings_trainable_) {
    while (lowest_ < static_cast<int64_t>(layers_.size()) && !layers_[lowest_].trainable()) ++lowest_;
    info_.trainable = lowest_ < static_cast<int64_t>(layers_.size());
  }
}

// The convolution with stride = kernel is a product over flattened patches; a border that fills no patch is
// left out.
at::Tensor VisionEncoder::patches_of(const at::Tensor& pixels) const {
  const int64_t images = pixels.size(0), channels = config_.num_channels, size = config_.image_size,
                p = config_.patch_size;
  const int64_t grid = size / p;
  at::Tensor patches = at::empty({images * grid * grid, channels * p * p}, pixels.options());
  const size_t item = pixels.element_size();
  const char* from = static_cast<const char*>(pixels.data_ptr());
  char* to = static_cast<char*>(patches.data_ptr());
  for (int64_t image = 0; image < images; ++image)
    for (int64_t gy = 0; gy < grid; ++gy)
      for (int64_t gx = 0; gx < grid; ++gx)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t y = 0; y < p; ++y) {
            const int64_t source = ((image * channels + c) * size + gy * p + y) * size + gx * p;
            std::memcpy(to, from + source * item, p * item);
            to += p * item;
          }
  return patches;
}

at::Tensor VisionEncoder::embed(const at::Tensor& patches, int64_t images) const {
  const int64_t count = config_.patches(), h = config_.hidden_size;
  at::Tensor rows = at::empty({images, count + 1, h}, patches.options());
  rows.narrow(1, 1, count)
      .copy_(at::mm(patches, patch_embedding_.value.view({h, -1}).t()).view({images, count, h}));
  rows.select(1, 0).copy_(class_embedding_.value.unsqueeze(0).expand({images, h}));
  rows.add_(position_embedding_.value.unsqueeze(0));
  return rows.view({images * (count + 1), h});
}

void VisionEncoder::embed_backward(const at::Tensor& gradient, const at::Tensor& patches, int64_t images,
                                   GradientSink& sink) const {
  const int64_t count = config_.patches(), h = config_.hidden_size;
  const at::Tensor rows = gradient.view({images, count + 1, h});
  if (position_embedding_.trainable())
    add_column_sums(gradient.view({images, (count + 1) * h}), position_embedding_.gradient.view({-1}));
  sink.ready(position_embedding_.index);
  if (patch_embedding_.trainable()) {
    at::Tensor grad = rows.narrow(1, 1, count).reshape({images * count, h}),
               sum = patch_embedding_.gradient.view({h, -1});
    if (grad.scalar_type() == at::kFloat)
      sum.addmm_(grad.t(), patches);
    else
      add_in_place(sum, at::mm(grad.t(), patches));
  }
  sink.ready(patch_embedding_.index);
  if (class_embedding_.trainable())
    add_column_sums(rows.select(1, 0).contiguous(), class_embedding_.gradient);
  sink.ready(class_embedding_.index);
}

// Feature layers side by side in each row. Images: all rows, without the class token's unless it is kept. Frames: the
// grid of patches, pooled (LlavaNextVideoModel.get_video_features).
at::Tensor VisionEncoder::select(const at::Tensor& features, int64_t images) const {
  const int64_t patches = config_.patches(), width = features.size(2), frames = features.size(0) - images;
  at::Tensor rows = keep_class_token_ ? features : features.narrow(1, 1, patches);
  if (frames == 0) return rows.reshape({-1, width});
  at::Tensor pooled = pool_grid(features.narrow(0, images, frames).narrow(1, 1, patches),
                                config_.image_size / config_.patch_size, frame_pool_);
  if (images == 0) return pooled;
  return at::cat({rows.narrow(0, 0, images).reshape({-1, width}), pooled}, 0);
}

void VisionEncoder::select_backward(const at::Tensor& gradient, int64_t images, at::Tensor& rows) const {
  const int64_t patches = config_.patches(), width = gradient.size(1), first = keep_class_token_ ? 0 : 1;
  const int64_t frames = rows.size(0) - images, image_rows = images * (patches + 1 - first);
  if (images > 0)
    rows.narrow(0, 0, images)
        .narrow(1, first, patches + 1 - first)
        .add_(gradient.narrow(0, 0, image_rows).view({images, -1, width}));
  if (frames == 0) return;
  at::Tensor grid = rows.narrow(0, images, frames).narrow(1, 1, patches);
  pool_grid_backward(gradient.narrow(0, image_rows, gradient.size(0) - image_rows),
                     config_.image_size / config_.patch_size, frame_pool_, grid);
}

at::Tensor VisionEncoder::forward(const StageBatch& batch, const at::Tensor&, std::unique_ptr<Kept>* kept) {
  const int64_t images = batch.media.size(0);  // and frames
  const int64_t length = config_.patches() + 1, h = config_.hidden_size;
  const std::vector<int64_t> lengths(static_cast<size_t>(images), length);
  auto all = kept != nullptr && info_.trainable ? std::make_unique<AllKept>() : nullptr;

  at::Tensor patches = patches_of(batch.media);
  NormResult pre = norm(embed(patches, images), {}, pre_norm_);
  at::Tensor sum = pre.y, delta;
  if (all) {
    all->layers.resize(layers_.size());
    if (embeddings_trainable_) {
      all->patches = std::move(patches);
      all->pre_norm = std::move(pre);
    }
  }
  std::vector<at::Tensor> features(states_.size());
  auto collect = [&](int64_t state) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i] != state) continue;
      features[i] = (delta.defined() ? sum + delta : sum).view({images, length, h});
    }
  };
  collect(0);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool keep = all && static_cast<int64_t>(i) >= lowest_;
    EncoderLayer::Kept* layer_kept = keep && !recompute_ ? &all->layers[i] : nullptr;
    if (keep && recompute_) {
      if (delta.defined()) sum = sum + delta, delta = at::Tensor();
      all->layers[i].norm1.sum = sum;
    }
    std::tie(sum, delta) = layers_[i].forward(sum, delta, lengths, layer_kept);
    collect(static_cast<int64_t>(i) + 1);
  }
  if (kept != nullptr) *kept = std::move(all);
  return select(features.size() == 1 ? features[0] : at::cat(features, -1), batch.images);
}

at::Tensor VisionEncoder::backward(const StageBatch& batch, std::unique_ptr<Kept> kept, at::Tensor gradient,
                                   bool, GradientSink& sink) {
  if (!info_.trainable) return {};
  auto& all = static_cast<AllKept&>(*kept);
  const int64_t images = batch.media.size(0);  // and frames
  const int64_t length = config_.patches() + 1, h = config_.hidden_size;
  const std::vector<int64_t> lengths(static_cast<size_t>(images), length);
  at::Tensor flow = at::zeros({images, length, h}, gradient.options());
  auto spread = [&](int64_t state) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i] != state) continue;
      select_backward(gradient.narrow(1, static_cast<int64_t>(i) * h, h), batch.images, flow);
    }
  };
  at::Tensor rows = flow.view({images * length, h});
  for (int64_t i = static_cast<int64_t>(layers_.size()) - 1; i >= lowest_; --i) {
    spread(i + 1);
    EncoderLayer::Kept layer = std::move(all.layers[i]);
    if (recompute_) {
      at::Tensor input = layer.norm1.sum;
      layers_[i].forward(input, {}, lengths, &layer);
    }
    layers_[i].backward(layer, rows, lengths, sink);
  }
  if (!embeddings_trainable_) return {};
  spread(0);
  at::Tensor embedded = at::zeros({images * length, h}, gradient.options());
  norm_backward(rows, all.pre_norm, pre_norm_, embedded, sink);
  embed_backward(embedded, all.patches, images, sink);
  return {};
}

}  // namespace mso
