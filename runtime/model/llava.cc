#include "model/llava.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/error.h"
#include "memory/host_pool.h"

namespace mso {

namespace {

// Multiply-adds count 2. The decoder's attention scores depend on the length of samples and are left out. Costs of the
// encoders are those of their own positions: a patch, a row behind Whisper's convolutions.
std::vector<StageInfo> describe(const ModelOutline& outline, std::vector<StageInfo> infos) {
  const LlavaConfig& c = outline.config;
  auto of_stage = [&](const std::string& name) -> StageInfo& {
    return *std::ranges::find(infos, name, &StageInfo::name);
  };
  for (const ParameterSpec& spec : outline.parameters) {
    StageInfo& info = of_stage(spec.stage);
    info.parameters += spec.count();
    const bool head = spec.name == "language_model.lm_head.weight",
               table = spec.name.ends_with("embed_tokens.weight") || spec.constant;
    // The first convolution works on twice as many rows as come out of the second.
    const double times = spec.name == "audio_tower.conv1.weight" ? 4.0 : 2.0;
    if (spec.used && spec.shape.size() >= 2 && !head && !table)
      info.flops_per_position += times * static_cast<double>(spec.count());
  }
  const double keys = static_cast<double>(c.vision.patches() + 1), width = static_cast<double>(c.vision.hidden_size);
  of_stage("vision_encoder").flops_per_position += 4.0 * keys * width * static_cast<double>(c.vision_layers_run());
  if (c.audio)
    of_stage("audio_encoder").flops_per_position +=
        4.0 * static_cast<double>(c.audio->max_source_positions * c.audio->d_model * c.audio->encoder_layers);
  of_stage("loss").flops_per_position =
      2.0 * static_cast<double>(c.text.hidden_size) * static_cast<double>(c.text.vocab_size);
  return infos;
}

std::vector<StageInfo> listed(std::vector<const Stage*> stages) {
  std::vector<StageInfo> infos;
  for (const Stage* stage : stages)
    if (stage) infos.push_back(stage->info());
  return infos;
}

template <typename T>
const Stage* pointer(const std::optional<T>& stage) {
  return stage ? &*stage : nullptr;
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error("the model cannot take this micro-batch", why,
              "the data pipeline and the model were set up differently");
}

std::string text(const std::vector<int64_t>& shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

// One kind of media of a micro-batch, as the model wants it.
struct MediaForm {
  const char *tensor, *positions;     // names in the micro-batch
  std::vector<int64_t> item;          // shape of one image, frame or clip
  int64_t positions_per_item = 0;     // 0: the model does not take this kind
};

// The tensor as it lies in the batch, undefined where there is none; its places are added to `places`.
at::Tensor checked_media(const MicroBatch& batch, const MediaForm& form, std::vector<int64_t>* places) {
  const auto media = batch.media.find(form.tensor);
  const auto positions = batch.media_positions.find(form.positions);
  const int64_t count =
      positions == batch.media_positions.end() ? 0 : static_cast<int64_t>(positions->second.size());
  const std::string kind = form.positions;
  if (media == batch.media.end() || media->second.count() == 0) {
    if (count > 0) refuse(kind + " positions without " + form.tensor);
    return {};
  }
  const HostTensor& items = media->second;
  if (form.positions_per_item == 0) refuse("it has " + std::string(form.tensor) + ", and this model takes no " + kind);
  if (items.dtype != DType::kF32 || items.shape.size() != form.item.size() + 1 ||
      !std::equal(form.item.begin(), form.item.end(), items.shape.begin() + 1))
    refuse(std::string(form.tensor) + " is not float32 with " + text(form.item) + " for each item, but " +
           name_of(items.dtype) + " " + text(items.shape));
  if (items.shape[0] * form.positions_per_item != count)
    refuse(std::to_string(count) + " " + kind + " positions for " + std::to_string(items.shape[0]) + " items in " +
           form.tensor + " of " + std::to_string(form.positions_per_item) + " positions each");
  for (int64_t position : positions->second)
    if (position < 0 || position >= batch.size())
      refuse(std::string(kind == "video" ? "a" : "an") + " " + kind + " position is outside the batch");
  places->insert(places->end(), positions->second.begin(), positions->second.end());
  return at::from_blob(const_cast<float*>(items.data<float>()), items.shape, at::TensorOptions(at::kFloat));
}

void refuse_shared_places(const std::vector<int64_t>& places, int64_t size) {
  std::vector<bool> taken(static_cast<size_t>(size));
  for (int64_t place : places) {
    if (taken[static_cast<size_t>(place)]) refuse("position " + std::to_string(place) + " is given to media twice");
    taken[static_cast<size_t>(place)] = true;
  }
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
      loss_(parameters_, config_.text.tie_word_embeddings) {
  if (config_.audio) {
    audio_.emplace(*config_.audio, parameters_, options.recompute);
    audio_projector_.emplace(parameters_);
    decoder_.reads("audio_projector");
  }
  infos_ = describe(outline, listed({&vision_, &projector_, pointer(audio_), pointer(audio_projector_), &decoder_, &loss_}));
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

  std::vector<int64_t> places;
  const ClipVisionConfig& v = config_.vision;
  const std::vector<int64_t> picture = {v.num_channels, v.image_size, v.image_size};
  const at::Tensor images = checked_media(batch, {"pixel_values", "image", picture, config_.positions_per_image()}, &places);
  const at::Tensor frames =
      checked_media(batch, {"pixel_values_videos", "video", picture, config_.positions_per_frame()}, &places);
  MediaForm sound{"input_features", "audio", {}, 0};
  if (config_.audio) {
    sound.item = {config_.audio->num_mel_bins, config_.audio->mel_frames()};
    sound.positions_per_item = config_.audio->positions_per_clip();
  }
  const at::Tensor clips = checked_media(batch, sound, &places);
  refuse_shared_places(places, size);
  if (images.defined()) b.images = images.size(0);
  if (images.defined() && frames.defined())
    b.media = at::cat({images.to(parameters_.scalar_type()), frames.to(parameters_.scalar_type())}, 0);
  else if (images.defined() || frames.defined())
    b.media = (images.defined() ? images : frames).to(parameters_.scalar_type());
  if (clips.defined()) b.sound = clips.to(parameters_.scalar_type());
  if (!places.empty()) b.media_positions = at::tensor(places, at::TensorOptions(at::kLong));
  b.media_gradient = (b.media.defined() && (vision_.trainable() || projector_.trainable())) ||
                     (b.sound.defined() && (audio_->trainable() || audio_projector_->trainable()));

  at::Tensor positions =
      at::from_blob(const_cast<int64_t*>(batch.positions.data()), {size}, at::TensorOptions(at::kLong));
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(1) * frequencies_.unsqueeze(0);
  b.cos = angles.cos();
  b.sin = angles.sin();
  return b;
}

std::vector<LlavaGraph::Branch> LlavaGraph::branches(const StageBatch& batch) {
  std::vector<Branch> found;
  if (batch.media.defined()) found.push_back({&vision_, &projector_});
  if (batch.sound.defined()) found.push_back({&*audio_, &*audio_projector_});
  return found;
}

at::Tensor LlavaGraph::features(const StageBatch& batch, std::vector<Branch>& branches, bool keep) {
  std::vector<at::Tensor> parts;
  for (Branch& branch : branches) {
    at::Tensor encoded =
        run_forward(*branch.encoder, batch, {}, keep && branch.encoder->trainable() ? &branch.encoder_kept : nullptr);
    parts.push_back(run_forward(*branch.projector, batch, encoded,
                                keep && branch.trainable() ? &branch.projector_kept : nullptr));
    branch.rows = parts.back().size(0);
  }
  if (parts.size() > 1) return at::cat(parts, 0);
  return parts.empty() ? at::Tensor() : parts[0];
}

LossSums LlavaGraph::forward_backward(const MicroBatch& micro_batch,
                                      const std::function<void(size_t)>& on_gradient) {
  c10::InferenceMode no_autograd;
  GradientSink sink(layout().tensors.size(), on_gradient);
  const StageBatch batch = prepare(micro_batch, false);
  LossSums sums;
  sums.labels = static_cast<int64_t>(batch.targets.size());
  if (sums.labels > 0) {
    std::unique_ptr<Kept> decoder_kept, loss_kept;
    const bool decoder_backward = decoder_.trainable() || batch.media_gradient;
    std::vector<Branch> media_branches = branches(batch);
    at::Tensor media = features(batch, media_branches, true);
    at::Tensor rows = run_forward(decoder_, batch, media, decoder_backward ? &decoder_kept : nullptr);
    sums.loss = loss_.forward(batch, rows, &loss_kept).item<double>();
    media = rows = at::Tensor();
    at::Tensor gradient = loss_.backward(batch, std::move(loss_kept), {}, true, sink);
    if (decoder_backward)
      gradient = run_backward(decoder_, batch, std::move(decoder_kept), gradient, batch.media_gradient, sink);
    // From the last branch to the first, as their parameters lie in the flat buffer.
    int64_t end = batch.media_gradient ? gradient.size(0) : 0;
    for (auto branch = media_branches.rbegin(); batch.media_gradient && branch != media_branches.rend(); ++branch) {
      end -= branch->rows;
      if (!branch->trainable()) continue;
      at::Tensor part = media_branches.size() == 1 ? gradient : gradient.narrow(0, end, branch->rows);
      part = run_backward(*branch->projector, batch, std::move(branch->projector_kept), part,
                          branch->encoder->trainable(), sink);
      if (branch->encoder->trainable())
        run_backward(*branch->encoder, batch, std::move(branch->encoder_kept), part, false, sink);
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
  if (sums.labels == 0) return sums;
  std::vector<Branch> media = branches(batch);
  const at::Tensor rows = run_forward(decoder_, batch, features(batch, media, false), nullptr);
  sums.loss = loss_.forward(batch, rows, nullptr).item<double>();
  return sums;
}

at::Tensor LlavaGraph::logits(const MicroBatch& micro_batch) {
  c10::InferenceMode no_autograd;
  const StageBatch batch = prepare(micro_batch, true);
  std::vector<Branch> media = branches(batch);
  return loss_.logits(run_forward(decoder_, batch, features(batch, media, false), nullptr)).to(at::kFloat);
}

std::unique_ptr<TrainingGraph> build_graph(const ModelOptions& options) {
  install_host_pool();
  return std::make_unique<LlavaGraph>(options);
}

}  // namespace mso
