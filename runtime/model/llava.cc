#include "model/llava.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include "base/error.h"
#include "memory/host_pool.h"

namespace mso {

namespace {

// Multiply-adds count 2. The decoder's attention scores depend on the length of samples and are left out.
std::vector<StageInfo> describe(const ModelOutline& outline, std::vector<StageInfo> infos) {
  const LlavaConfig& c = outline.config;
  for (size_t i = 0; i < outline.parameters.size(); ++i) {
    const ParameterSpec& spec = outline.parameters[i];
    int64_t count = 1;
    for (int64_t dim : spec.shape) count *= dim;
    for (StageInfo& info : infos) {
      if (info.name != spec.stage) continue;
      info.parameters += count;
      const bool head = spec.name == "language_model.lm_head.weight",
                 table = spec.name.ends_with("embed_tokens.weight");
      if (spec.used && spec.shape.size() >= 2 && !head && !table)
        info.flops_per_position += 2.0 * static_cast<double>(count);
    }
  }
  const double keys = static_cast<double>(c.vision.patches() + 1),
               width = static_cast<double>(c.vision.hidden_size);
  infos[0].flops_per_position += 4.0 * keys * width * static_cast<double>(c.vision_layers_run());
  infos[3].flops_per_position =
      2.0 * static_cast<double>(c.text.hidden_size) * static_cast<double>(c.text.vocab_size);
  return infos;
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error("the model cannot take this micro-batch", why,
              "the data pipeline and the model were set up differently");
}

}  // namespace

LlavaGraph::LlavaGraph(const ModelOptions& options) : LlavaGraph(options, outline_model(options)) {}

LlavaGraph::LlavaGraph(const ModelOptions& options, ModelOutline outline)
    : config_(outline.config),
      parameters_(outline.parameters, outline.frozen, options.compute),
      frequencies_(rotary_frequencies(config_.text)),
      vision_(config_, parameters_, options.recompute),
      projector_(config_, parameters_),
      decoder_(config_.text, parameters_, options.recompute),
      loss_(parameters_, config_.text.tie_word_embeddings),
      infos_(describe(outline, {vision_.info(), projector_.info(), decoder_.info(), loss_.info()})) {
  if (!options.values) return;
  fill_parameters(options, outline, parameters_.weights(), parameters_.frozen_weights());
  parameters_.weights_changed(0, layout().size);
  parameters_.frozen_weights_changed();
}

StageBatch LlavaGraph::prepare(const MicroBatch& batch, bool all_rows) const {
  const int64_t size = batch.size();
  StageBatch b;
  b.batch = &batch;
  if (static_cast<int64_t>(batch.positions.size()) != size ||
      static_cast<int64_t>(batch.labels.size()) != size)
    refuse("tokens, labels and positions differ in length");
  if (batch.sample_starts.empty() || batch.sample_starts.front() != 0 || batch.sample_starts.back() != size)
    refuse("sample_starts does not cover the tokens");
  for (size_t i = 1; i < batch.sample_starts.size(); ++i) {
    const int64_t length = batch.sample_starts[i] - batch.sample_starts[i - 1];
    if (length < 0) refuse("sample_starts is not ascending");
    b.lengths.push_back(length);
  }
  for (int64_t token : batch.tokens)
    if (token < 0 || token >= config_.text.vocab_size)
      refuse("token " + std::to_string(token) + " is outside the vocabulary of " +
             std::to_string(config_.text.vocab_size));
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < size; ++t) {
    const int64_t label = batch.labels[static_cast<size_t>(t)];
    if (label == kIgnoreLabel) continue;
    if (label < 0 || label >= config_.text.vocab_size)
      refuse("label " + std::to_string(label) + " is outside the vocabulary of " +
             std::to_string(config_.text.vocab_size));
    rows.push_back(t);
    b.targets.push_back(label);
  }
  if (!all_rows) b.rows = at::tensor(rows, at::TensorOptions(at::kLong));
  b.tokens = at::from_blob(const_cast<int64_t*>(batch.tokens.data()), {size}, at::TensorOptions(at::kLong));

  auto pixels = batch.media.find("pixel_values");
  auto places = batch.media_positions.find("image");
  const int64_t count =
      places == batch.media_positions.end() ? 0 : static_cast<int64_t>(places->second.size());
  if (pixels != batch.media.end() && pixels->second.count() > 0) {
    const HostTensor& image = pixels->second;
    const ClipVisionConfig& v = config_.vision;
    if (image.dtype != DType::kF32 || image.shape.size() != 4 || image.shape[1] != v.num_channels ||
        image.shape[2] != v.image_size || image.shape[3] != v.image_size)
      refuse("pixel_values is not float32 [images, " + std::to_string(v.num_channels) + ", " +
             std::to_string(v.image_size) + ", " + std::to_string(v.image_size) + "]");
    if (image.shape[0] * config_.positions_per_image() != count)
      refuse(std::to_string(count) + " image positions for " + std::to_string(image.shape[0]) +
             " images of " + std::to_string(config_.positions_per_image()) + " each");
    for (int64_t position : places->second)
      if (position < 0 || position >= size) refuse("an image position is outside the batch");
    b.media =
        at::from_blob(const_cast<float*>(image.data<float>()), image.shape, at::TensorOptions(at::kFloat))
            .to(parameters_.scalar_type());
    b.media_positions =
        at::from_blob(const_cast<int64_t*>(places->second.data()), {count}, at::TensorOptions(at::kLong));
  } else if (count > 0) {
    refuse("image positions without pixel_values");
  }
  b.media_gradient = b.media.defined() && (vision_.trainable() || projector_.trainable());

  at::Tensor positions =
      at::from_blob(const_cast<int64_t*>(batch.positions.data()), {size}, at::TensorOptions(at::kLong));
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * frequencies_.unsqueeze(0);
  b.cos = angles.cos();
  b.sin = angles.sin();
  return b;
}

at::Tensor LlavaGraph::features(const StageBatch& batch, std::unique_ptr<Kept>* vision_kept,
                                std::unique_ptr<Kept>* projector_kept) {
  if (!batch.media.defined()) return {};
  return run_forward(projector_, batch, run_forward(vision_, batch, {}, vision_kept), projector_kept);
}

LossSums LlavaGraph::forward_backward(const MicroBatch& micro_batch,
                                      const std::function<void(size_t)>& on_gradient) {
  c10::InferenceMode no_autograd;
  GradientSink sink(layout().tensors.size(), on_gradient);
  const StageBatch batch = prepare(micro_batch, false);
  LossSums sums;
  sums.labels = static_cast<int64_t>(batch.targets.size());
  if (sums.labels > 0) {
    std::unique_ptr<Kept> vision_kept, projector_kept, decoder_kept, loss_kept;
    const bool decoder_backward = decoder_.trainable() || batch.media_gradient;
    at::Tensor media = features(batch, vision_.trainable() ? &vision_kept : nullptr,
                                batch.media_gradient ? &projector_kept : nullptr);
    at::Tensor rows = run_forward(decoder_, batch, media, decoder_backward ? &decoder_kept : nullptr);
    sums.loss = loss_.forward(batch, rows, &loss_kept).item<double>();
    media = rows = at::Tensor();
    at::Tensor gradient = loss_.backward(batch, std::move(loss_kept), {}, true, sink);
    if (decoder_backward)
      gradient = run_backward(decoder_, batch, std::move(decoder_kept), gradient, batch.media_gradient, sink);
    if (batch.media_gradient) {
      gradient = run_backward(projector_, batch, std::move(projector_kept), gradient, vision_.trainable(), sink);
      if (vision_.trainable()) run_backward(vision_, batch, std::move(vision_kept), gradient, false, sink);
    }
  }
  sink.flush();
  return sums;
}

LossSums LlavaGraph::evaluate(const MicroBatch& micro_batch) {
  c10::InferenceMode no_autograd;
  const StageBatch batch = prepare(micro_batch, false);
  LossSums sums;
  sums.labels = static_cast<int64_t>(batch.targets.size());
  if (sums.labels > 0)
    sums.loss =
        loss_.forward(batch, run_forward(decoder_, batch, features(batch, nullptr, nullptr), nullptr), nullptr)
            .item<double>();
  return sums;
}

at::Tensor LlavaGraph::logits(const MicroBatch& micro_batch) {
  c10::InferenceMode no_autograd;
  const StageBatch batch = prepare(micro_batch, true);
  return loss_.logits(run_forward(decoder_, batch, features(batch, nullptr, nullptr), nullptr)).to(at::kFloat);
}

std::unique_ptr<TrainingGraph> build_graph(const ModelOptions& options) {
  install_host_pool();
  return std::make_unique<LlavaGraph>(options);
}

}  // namespace mso
