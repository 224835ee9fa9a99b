// Each fused kernel, forward and backward, against plain ATen operations with autograd in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/random.h"
#include "model/linear.h"
#include "model/ops.h"

namespace mso {
namespace {

using at::Tensor;

// Values of variance about scale², the same on every machine.
Tensor random(at::IntArrayRef shape, int seed, double scale = 1) {
  Tensor x = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<float>()[i] = static_cast<float>(
        (random_uniform({static_cast<uint64_t>(seed), static_cast<uint64_t>(i)}) - 0.5) * 3.46 * scale);
  return x;
}

// |a − b| relative to b's largest.
double error(const Tensor& a, const Tensor& b) {
  if (b.numel() == 0) return 0;
  return ((a.to(at::kDouble) - b.detach().to(at::kDouble)).abs().max() /
          b.detach().to(at::kDouble).abs().max().clamp_min(1e-30))
      .item<double>();
}

Tensor leaf(const Tensor& x) {
  return x.to(at::kDouble).detach().clone().requires_grad_(true);
}

Weight weight_of(const Tensor& value, int64_t index) {
  return {value, at::zeros(value.sizes(), at::kFloat), index};
}

struct Sizes {
  int64_t rows, cols;
};
const Sizes kSizes[] = {{1, 1}, {3, 7}, {5, 16}, {67, 33}, {130, 48}};

class KernelTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type = GetParam();
  double tolerance = type == at::kFloat ? 2e-6 : 2e-2;
  std::function<void(size_t)> nobody;
};
INSTANTIATE_TEST_SUITE_P(Types, KernelTest, testing::Values(at::kFloat, at::kBFloat16));

TEST_P(KernelTest, NormsWithResidual) {
  for (auto [rows, cols] : kSizes)
    for (bool layer : {false, true}) {
      if (layer && cols == 1) continue;  // the variance of one number
      const Tensor a = random({rows, cols}, 1).to(type), b = random({rows, cols}, 2).to(type),
                   dy = random({rows, cols}, 3).to(type);
      NormWeights weights;
      weights.weight = weight_of(random({cols}, 4).to(type), 0);
      if (layer) weights.bias = weight_of(random({cols}, 5).to(type), 1);
      const NormResult result = norm(a, b, weights);
      Tensor grad = random({rows, cols}, 6).to(type);
      const Tensor before = grad.clone();
      GradientSink sink(2, nobody);
      norm_backward(dy, result, weights, grad, sink);

      Tensor x = leaf(result.sum), w = leaf(weights.weight.value),
             c = layer ? leaf(weights.bias.value) : Tensor();
      EXPECT_LT(error(result.sum, a.to(at::kDouble) + b.to(at::kDouble)), type == at::kFloat ? 1e-7 : 8e-3);
      Tensor y =
          layer ? at::layer_norm(x, {cols}, w, c, 1e-5) : w * x * (x.pow(2).mean(-1, true) + 1e-5).rsqrt();
      y.backward(dy.to(at::kDouble));
      EXPECT_LT(error(result.y, y), tolerance) << rows << "x" << cols;
      EXPECT_LT(error(grad, before.to(at::kDouble) + x.grad()), tolerance) << rows << "x" << cols;
      EXPECT_LT(error(weights.weight.gradient, w.grad()), tolerance) << rows << "x" << cols;
      if (layer) {
        EXPECT_LT(error(weights.bias.gradient, c.grad()), tolerance) << rows << "x" << cols;
      }
    }
}

TEST_P(KernelTest, NormsWithoutResidualKeepTheirInput) {
  const Tensor x = random({9, 20}, 1).to(type);
  NormWeights weights;
  weights.weight = weight_of(random({20}, 4).to(type), -1);
  weights.weight.gradient = Tensor();  // frozen
  const NormResult result = norm(x, {}, weights);
  EXPECT_TRUE(result.sum.is_same(x));
  Tensor grad = at::zeros_like(x);
  GradientSink sink(0, nobody);
  norm_backward(x, result, weights, grad, sink);
  EXPECT_GT(grad.abs().max().item<double>(), 0);
}

TEST_P(KernelTest, SwiGlu) {
  for (auto [rows, cols] : kSizes) {
    Tensor gate_up = random({rows, 2 * cols}, 1, 3).to(type), dy = random({rows, cols}, 2).to(type);
    Tensor x = leaf(gate_up), right = at::silu(x.narrow(1, 0, cols)) * x.narrow(1, cols, cols);
    right.backward(dy.to(at::kDouble));
    EXPECT_LT(error(swiglu(gate_up), right), tolerance);
    swiglu_backward(dy, gate_up);
    EXPECT_LT(error(dy, right), tolerance);  // the value again
    EXPECT_LT(error(gate_up, x.grad()), tolerance);
  }
}

TEST_P(KernelTest, Activations) {
  for (auto [rows, cols] : kSizes)
    for (Activation activation : {Activation::kQuickGelu, Activation::kGelu}) {
      Tensor z = random({rows, cols}, 1, 3).to(type), dy = random({rows, cols}, 2).to(type),
             bias = at::zeros({cols}, at::kFloat);
      Tensor x = leaf(z), right = activation == Activation::kGelu ? at::gelu(x) : x * at::sigmoid(1.702 * x);
      right.backward(dy.to(at::kDouble));
      // As in float32 implementations of 1 + erf, the error in the tails is that of numbers around 1.
      auto absolute = [](const Tensor& a, const Tensor& b) {
        return (a.to(at::kDouble) - b.detach()).abs().max().item<double>();
      };
      EXPECT_LT(absolute(activate(z, activation), right), tolerance);
      activate_backward(dy, z, activation, bias);
      EXPECT_LT(absolute(dy, right), tolerance);
      EXPECT_LT(absolute(z, x.grad()), tolerance);
      EXPECT_LT(absolute(bias, x.grad().sum(0)), tolerance * 10);
    }
}

TEST(Kernels, ActivationsOfExtremeValues) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensor x = at::tensor({-inf, -1e30f, -200.0f, -90.0f, -0.0f, 0.0f, 90.0f, 200.0f, 1e30f}, at::kFloat);
  const Tensor quick = activate(x, Activation::kQuickGelu), exact = activate(x, Activation::kGelu);
  for (int64_t i = 1; i < x.size(0); ++i) {
    const float v = x[i].item<float>(), right = v > 0 ? v : 0;
    EXPECT_NEAR(quick[i].item<float>(), right, std::abs(v) * 1e-6f) << v;
    EXPECT_NEAR(exact[i].item<float>(), right, std::abs(v) * 1e-6f) << v;
  }
}

TEST_P(KernelTest, Rotary) {
  for (int64_t half : {1, 5, 16, 20}) {
    const int64_t rows = 6, heads = 3, dim = 2 * half, stride = 5 * dim;
    Tensor x = random({rows, stride}, 1).to(type), angles = random({rows, half}, 2, 50), cos = angles.cos(),
           sin = angles.sin();
    const Tensor before = x.clone();
    rotary(x, heads, dim, cos, sin, false);
    Tensor v = before.to(at::kDouble).view({rows, 5, dim}),
           c = at::cat({cos, cos}, 1).to(at::kDouble).unsqueeze(1),
           s = at::cat({sin, sin}, 1).to(at::kDouble).unsqueeze(1);
    Tensor turned = v * c + at::cat({-v.narrow(2, half, half), v.narrow(2, 0, half)}, 2) * s;
    Tensor right = at::cat({turned.narrow(1, 0, heads), v.narrow(1, heads, 2)}, 1).view({rows, stride});
    EXPECT_LT(error(x, right), tolerance);
    rotary(x, heads, dim, cos, sin, true);
    EXPECT_LT(error(x, before), tolerance);
  }
}

TEST_P(KernelTest, CrossEntropy) {
  for (int64_t cols : {1, 2, 15, 16, 100, 1024, 2500}) {
    const int64_t rows = 4;
    Tensor logits = random({rows, cols}, 1, 4).to(type);
    std::vector<int64_t> targets{0, cols - 1, cols / 2, cols / 3};
    Tensor x = leaf(logits);
    Tensor loss = at::cross_entropy_loss(x, at::tensor(targets), {}, at::Reduction::Sum);
    loss.backward();
    Tensor copy = logits.clone();
    EXPECT_NEAR(cross_entropy(copy, targets.data(), false), loss.item<double>(),
                2e-6 * std::max(1.0, loss.item<double>()));
    EXPECT_TRUE(at::equal(copy, logits));
    cross_entropy(logits, targets.data(), true);
    EXPECT_LT((logits.to(at::kDouble) - x.grad()).abs().max().item<double>(),
              type == at::kFloat ? 1e-6 : 4e-3);
  }
}

TEST(Kernels, CrossEntropyOfLargeLogits) {
  Tensor logits = at::tensor({1e4f, -1e4f, 0.0f, 88.0f}, at::kFloat).view({1, 4});
  const int64_t target = 1;
  EXPECT_NEAR(cross_entropy(logits, &target, true), 2e4, 1e-2);
  EXPECT_EQ(logits[0][0].item<float>(), 1);
  EXPECT_EQ(logits[0][1].item<float>(), -1);
}

TEST_P(KernelTest, AttentionOverPackedSamples) {
  for (auto [heads, kv_heads, causal] :
       {std::tuple<int64_t, int64_t, bool>{4, 4, true}, {4, 2, true}, {6, 1, true}, {2, 2, false}}) {
    const AttentionShape shape{heads, kv_heads, 10, causal};
    const std::vector<int64_t> lengths{5, 5, 1, 0, 70, 5};
    const int64_t rows = 86;
    Tensor qkv = random({rows, shape.row()}, 1).to(type), dy = random({rows, heads * 10}, 2).to(type);
    const AttentionResult result = attention(qkv, lengths, shape);
    const Tensor grad = attention_backward(dy, qkv, result, lengths, shape);

    Tensor x = leaf(qkv);
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (int64_t length : lengths) {
      Tensor sample = x.narrow(0, begin, length).view({length, heads + 2 * kv_heads, 10}).transpose(0, 1);
      Tensor q = sample.narrow(0, 0, heads),
             k = sample.narrow(0, heads, kv_heads).repeat_interleave(heads / kv_heads, 0),
             v = sample.narrow(0, heads + kv_heads, kv_heads).repeat_interleave(heads / kv_heads, 0);
      Tensor scores = at::matmul(q, k.transpose(1, 2)) / std::sqrt(10.0);
      if (causal) scores = scores.masked_fill(at::ones({length, length}, at::kBool).triu(1), -INFINITY);
      parts.push_back(at::matmul(at::softmax(scores, -1), v).transpose(0, 1).reshape({length, heads * 10}));
      begin += length;
    }
    Tensor right = at::cat(parts);
    right.backward(dy.to(at::kDouble));
    EXPECT_LT(error(result.out, right), tolerance * 2);
    EXPECT_LT(error(grad, x.grad()), tolerance * 4) << heads << "/" << kv_heads;
  }
}

TEST_P(KernelTest, EmbeddingGradientSkipsMedia) {
  const Tensor dy = random({4, 19}, 1).to(type);
  const int64_t tokens[] = {2, 0, 2, 1};
  Tensor table = at::zeros({3, 19}, at::kFloat);
  embedding_gradient(dy, tokens, {false, false, false, true}, table);
  EXPECT_LT(error(table[2], dy[0].to(at::kFloat) + dy[2].to(at::kFloat)), 1e-7);
  EXPECT_LT(error(table[0], dy[1].to(at::kFloat)), 1e-7);
  EXPECT_EQ(table[1].abs().max().item<float>(), 0);
}

TEST(Kernels, ColumnSumsOfManyRows) {
  const Tensor x = random({10000, 5}, 1).add_(1);
  Tensor sums = at::ones({5}, at::kFloat);
  add_column_sums(x, sums);
  EXPECT_LT(error(sums, x.to(at::kDouble).sum(0) + 1), 1e-6);
}

TEST(Kernels, BFloat16RoundsToNearestEven) {
  Tensor x =
      at::cat({random({1000}, 1),
               at::tensor({0.0f, 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f, NAN, INFINITY}, at::kFloat)});
  Tensor ours = at::empty({x.numel()}, at::kBFloat16);
  to_bf16(x.const_data_ptr<float>(), static_cast<BFloat16Bits*>(ours.data_ptr()), x.numel());
  EXPECT_TRUE(at::allclose(ours.to(at::kFloat), x.to(at::kBFloat16).to(at::kFloat), 0, 0, true));
}

TEST(Linear, AdjacentMatricesAreOneProductAndOthersAgree) {
  std::vector<ParameterSpec> specs{
      {"a.weight", "s", {16, 4}}, {"b.weight", "s", {8, 4}}, {"a.bias", "s", {16}}, {"b.bias", "s", {8}}};
  const Tensor x = random({5, 4}, 1), dy = random({5, 24}, 2);
  std::function<void(size_t)> nobody;
  Tensor outputs[2], inputs[2], gradients[2];
  for (int split = 0; split < 2; ++split) {
    FlatParameters parameters(specs, {false, split == 1, false, split == 1},
                              ComputeType::kF32);  // b frozen: elsewhere
    for (const ParameterSpec& spec : specs)
      parameters.find(spec.name).value.copy_(
          random(spec.shape, static_cast<int>(spec.name[0]) + static_cast<int>(spec.shape.size())));
    LinearWeights weights(parameters, {"a", "b"}, true);
    EXPECT_EQ(weights.parts.size(), split ? 2u : 1u);
    EXPECT_EQ(weights.out, 24);
    outputs[split] = linear(x, weights);
    inputs[split] = linear_input_gradient(dy, weights);
    GradientSink sink(4, nobody);
    linear_weight_gradient(dy, x, weights, sink);
    gradients[split] = parameters.find("a.weight").gradient.clone();
    EXPECT_LT(error(parameters.find("a.bias").gradient, dy.narrow(1, 0, 16).sum(0)), 1e-6);
  }
  EXPECT_LT(error(outputs[0], outputs[1]), 1e-6);
  EXPECT_LT(error(inputs[0], inputs[1]), 1e-6);
  EXPECT_LT(error(gradients[0], gradients[1]), 1e-6);
  EXPECT_LT(error(gradients[0], at::mm(dy.narrow(1, 0, 16).t(), x)), 1e-6);
}

}  // namespace
}  // namespace mso
