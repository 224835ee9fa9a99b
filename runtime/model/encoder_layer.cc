#include "model/encoder_layer.h"

namespace mso {

EncoderLayer::EncoderLayer(const FlatParameters& parameters, const std::string& name, const EncoderLayerForm& form)
    : norm1_(parameters, name + form.norm1, form.eps, true),
      norm2_(parameters, name + form.norm2, form.eps, true),
      qkv_(parameters, {name + "self_attn.q_proj", name + "self_attn.k_proj", name + "self_attn.v_proj"},
           std::vector<bool>{true, form.key_bias, true}),
      out_(parameters, {name + "self_attn.out_proj"}, true),
      fc1_(parameters, {name + form.fc1}, true),
      fc2_(parameters, {name + form.fc2}, true),
      activation_(form.activation),
      attention_(form.attention) {
  trainable_ = norm1_.trainable() || norm2_.trainable() || qkv_.trainable() || out_.trainable() || fc1_.trainable() ||
               fc2_.trainable();
}

std::pair<at::Tensor, at::Tensor> EncoderLayer::forward(const at::Tensor& input, const at::Tensor& delta,
                                                        const std::vector<int64_t>& lengths, Kept* kept) const {
  NormResult norm1 = norm(input, delta, norm1_);
  at::Tensor qkv = linear(norm1.y, qkv_);
  AttentionResult attended = attention(qkv, lengths, attention_);
  NormResult norm2 = norm(linear(attended.out, out_), norm1.sum, norm2_);
  at::Tensor fc1 = linear(norm2.y, fc1_);
  at::Tensor fc2 = linear(activate(fc1, activation_), fc2_);
  at::Tensor sum = norm2.sum;
  if (kept != nullptr)
    *kept = {std::move(norm1), std::move(norm2), std::move(qkv), std::move(fc1), std::move(attended)};
  return {sum, fc2};
}

void EncoderLayer::backward(Kept& kept, at::Tensor& gradient, const std::vector<int64_t>& lengths,
                            GradientSink& sink) const {
  at::Tensor grad = linear_input_gradient(gradient, fc2_);
  activate_backward(grad, kept.fc1, activation_, fc1_.parts[0].bias.gradient);  // grad is now fc2's input
  linear_weight_gradient(gradient, grad, fc2_, sink);
  linear_weight_gradient(kept.fc1, kept.norm2.y, fc1_, sink, true);
  norm_backward(linear_input_gradient(kept.fc1, fc1_), kept.norm2, norm2_, gradient, sink);

  linear_weight_gradient(gradient, kept.attention.out, out_, sink);
  at::Tensor grad_qkv =
      attention_backward(linear_input_gradient(gradient, out_), kept.qkv, kept.attention, lengths, attention_);
  linear_weight_gradient(grad_qkv, kept.norm1.y, qkv_, sink);
  norm_backward(linear_input_gradient(grad_qkv, qkv_), kept.norm1, norm1_, gradient, sink);
}

}  // namespace mso
