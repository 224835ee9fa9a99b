#include "model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "model/ops.h"

namespace mso {

LinearWeights::LinearWeights(const FlatParameters& parameters, const std::vector<std::string>& names,
                             const std::vector<bool>& has_bias) {
  auto with = [](const std::vector<std::string>& modules, const char* suffix) {
    std::vector<std::string> result;
    for (const std::string& module : modules) result.push_back(module + suffix);
    return result;
  };
  auto add = [&](const std::vector<std::string>& modules, bool biases) {
    Part part;
    part.weight = parameters.find_joined(with(modules, ".weight"));
    if (biases) part.bias = parameters.find_joined(with(modules, ".bias"));
    if (!part.weight.value.defined() || (biases && !part.bias.value.defined())) return false;
    part.begin = out;
    part.out = part.weight.value.size(0);
    out += part.out;
    parts.push_back(std::move(part));
    return true;
  };
  const bool alike = std::count(has_bias.begin(), has_bias.end(), has_bias[0]) == std::ssize(has_bias);
  if (!alike || !add(names, has_bias[0]))
    for (size_t i = 0; i < names.size(); ++i) add({names[i]}, has_bias[i]);
  in = parts[0].weight.value.size(1);
  for (size_t i = 0; i < names.size(); ++i) {
    if (int64_t index = parameters.find(names[i] + ".weight").index; index >= 0) indices.push_back(index);
    if (!has_bias[i]) continue;
    if (int64_t index = parameters.find(names[i] + ".bias").index; index >= 0) indices.push_back(index);
  }
}

at::Tensor linear(const at::Tensor& x, const LinearWeights& weights) {
  if (weights.parts.size() == 1) {
    const LinearWeights::Part& part = weights.parts[0];
    return part.bias.value.defined() ? at::addmm(part.bias.value, x, part.weight.value.t())
                                     : at::mm(x, part.weight.value.t());
  }
  at::Tensor y = at::empty({x.size(0), weights.out}, x.options());
  for (const LinearWeights::Part& part : weights.parts) {
    at::Tensor columns = y.narrow(1, part.begin, part.out);
    if (part.bias.value.defined())
      at::addmm_out(columns, part.bias.value, x, part.weight.value.t());
    else
      at::mm_out(columns, x, part.weight.value.t());
  }
  return y;
}

at::Tensor linear_input_gradient(const at::Tensor& grad_y, const LinearWeights& weights) {
  at::Tensor grad_x;
  for (const LinearWeights::Part& part : weights.parts) {
    const at::Tensor columns = weights.parts.size() == 1 ? grad_y : grad_y.narrow(1, part.begin, part.out);
    if (grad_x.defined())
      grad_x.addmm_(columns, part.weight.value);
    else
      grad_x = at::mm(columns, part.weight.value);
  }
  return grad_x;
}

void linear_weight_gradient(const at::Tensor& grad_y, const at::Tensor& x, const LinearWeights& weights,
                            GradientSink& sink, bool bias_done) {
  for (const LinearWeights::Part& part : weights.parts) {
    const at::Tensor columns = weights.parts.size() == 1 ? grad_y : grad_y.narrow(1, part.begin, part.out);
    if (part.weight.trainable()) {
      at::Tensor gradient = part.weight.gradient;
      if (x.scalar_type() == at::kFloat) {
        gradient.addmm_(columns.t(), x);
      } else {
        // The product is summed in float32 inside the kernel and rounded once; micro-batches add up in
        // float32.
        add_in_place(gradient, at::mm(columns.t(), x));
      }
    }
    if (part.bias.trainable() && !bias_done)
      add_column_sums(columns.is_contiguous() ? columns : columns.contiguous(), part.bias.gradient);
  }
  sink.ready(weights.indices);
}

}  // namespace mso
