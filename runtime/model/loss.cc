#include "model/loss.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "model/ops.h"

namespace mso {

namespace {
constexpr int64_t kChunkElements = int64_t{1} << 21;  // logits that exist at a time: 8 MiB of float32
}

LossStage::LossStage(const FlatParameters& parameters, bool tied)
    : Stage({"loss", {"llm_decoder"}, false, false, 0, 0}),
      head_(parameters, {tied ? "language_model.model.embed_tokens" : "language_model.lm_head"}, false) {
  info_.trainable = head_.trainable();
  if (!tied) to_report_ = head_.indices;
  head_.indices.clear();  // reported in backward
}

at::Tensor LossStage::forward(const StageBatch& batch, const at::Tensor& input, std::unique_ptr<Kept>* kept) {
  const int64_t rows = input.size(0), chunk = std::max<int64_t>(1, kChunkElements / head_.out);
  auto all = kept != nullptr ? std::make_unique<AllKept>() : nullptr;
  if (all) all->input_gradient = at::empty_like(input);
  const std::function<void(size_t)> nobody;
  GradientSink silent(0, nobody);
  double loss = 0;
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const at::Tensor part = input.narrow(0, begin, count);
    at::Tensor scores = linear(part, head_);
    loss += cross_entropy(scores, batch.targets.data() + begin, all != nullptr);
    if (!all) continue;
    all->input_gradient.narrow(0, begin, count).copy_(linear_input_gradient(scores, head_));
    linear_weight_gradient(scores, part, head_, silent);
  }
  if (kept != nullptr) *kept = std::move(all);
  return at::scalar_tensor(loss, at::TensorOptions(at::kDouble));
}

at::Tensor LossStage::backward(const StageBatch&, std::unique_ptr<Kept> kept, at::Tensor, bool,
                               GradientSink& sink) {
  sink.ready(to_report_);
  return static_cast<AllKept&>(*kept).input_gradient;
}

at::Tensor LossStage::logits(const at::Tensor& input) const {
  return linear(input, head_);
}

}  // namespace mso
