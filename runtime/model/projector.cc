#include "model/projector.h"

namespace mso {

Projector::Projector(const LlavaConfig& config, const FlatParameters& parameters)
    : Stage({"projector", {"vision_encoder"}, true, false, 0, 0}),
      first_(parameters, {"multi_modal_projector.linear_1"}, config.projector_bias),
      second_(parameters, {"multi_modal_projector.linear_2"}, config.projector_bias),
      activation_(config.projector_hidden_act) {
  info_.trainable = first_.trainable() || second_.trainable();
}

at::Tensor Projector::forward(const StageBatch&, const at::Tensor& input, std::unique_ptr<Kept>* kept) {
  at::Tensor middle = linear(input, first_);
  at::Tensor result = linear(activate(middle, activation_), second_);
  if (kept != nullptr) {
    auto all = std::make_unique<AllKept>();
    all->input = input;
    all->middle = std::move(middle);
    *kept = std::move(all);
  }
  return result;
}

at::Tensor Projector::backward(const StageBatch&, std::unique_ptr<Kept> kept, at::Tensor gradient,
                               bool want_input_gradient, GradientSink& sink) {
  auto& all = static_cast<AllKept&>(*kept);
  at::Tensor grad = linear_input_gradient(gradient, second_);
  activate_backward(grad, all.middle, activation_,
                    first_.parts[0].bias.gradient);  // grad is now the input of linear_2
  linear_weight_gradient(gradient, grad, second_, sink);
  linear_weight_gradient(all.middle, all.input, first_, sink, true);
  return want_input_gradient ? linear_input_gradient(all.middle, first_) : at::Tensor();
}

AudioProjector::AudioProjector(const FlatParameters& parameters)
    : Stage({"audio_projector", {"audio_encoder"}, true, false, 0, 0}),
      linear_(parameters, {"audio_projector.linear"}, true) {
  info_.trainable = linear_.trainable();
}

at::Tensor AudioProjector::forward(const StageBatch&, const at::Tensor& input, std::unique_ptr<Kept>* kept) {
  if (kept != nullptr) {
    auto all = std::make_unique<AllKept>();
    all->input = input;
    *kept = std::move(all);
  }
  return linear(input, linear_);
}

at::Tensor AudioProjector::backward(const StageBatch&, std::unique_ptr<Kept> kept, at::Tensor gradient,
                                    bool want_input_gradient, GradientSink& sink) {
  linear_weight_gradient(gradient, static_cast<AllKept&>(*kept).input, linear_, sink);
  return want_input_gradient ? linear_input_gradient(gradient, linear_) : at::Tensor();
}

}  // namespace mso
