#include "model/ops.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>

namespace mso {

namespace {

constexpr int64_t kBlock = 64;  // rows whose sums are formed before they are added to a gradient

template <typename T>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// Calls f with a null pointer of the storage type.
template <typename F>
decltype(auto) by_type(const at::Tensor& tensor, F&& f) {
  if (tensor.scalar_type() == at::kBFloat16) return f(static_cast<BFloat16Bits*>(nullptr));
  return f(static_cast<float*>(nullptr));
}
#define MSO_TYPE(t) std::remove_pointer_t<decltype(t)>

// Sums of a block of rows, added to a gradient when the block is done.
class Partial {
 public:
  explicit Partial(const at::Tensor& gradient)
      : sum_(pointer<float>(gradient)), part_(sum_ ? gradient.numel() : 0) {}
  float* begin() {
    std::fill(part_.begin(), part_.end(), 0.0f);
    return sum_ ? part_.data() : nullptr;
  }
  void end() {
    if (sum_) accumulate(part_.data(), sum_, static_cast<int64_t>(part_.size()));
  }

 private:
  float* sum_;
  std::vector<float> part_;
};

// Samples of equal length that follow each other are one batched call.
struct Run {
  int64_t begin, count, length;
};
std::vector<Run> runs_of(const std::vector<int64_t>& lengths) {
  std::vector<Run> runs;
  int64_t at = 0;
  for (int64_t length : lengths) {
    if (!runs.empty() && runs.back().length == length)
      ++runs.back().count;
    else if (length > 0)
      runs.push_back({at, 1, length});
    at += length;
  }
  return runs;
}

// [count, heads, length, head_dim] views of the three parts of a run's rows.
std::array<at::Tensor, 3> views_of(const at::Tensor& qkv, const Run& run, const AttentionShape& s) {
  at::Tensor rows = qkv.narrow(0, run.begin, run.count * run.length)
                        .view({run.count, run.length, s.heads + 2 * s.kv_heads, s.head_dim})
                        .transpose(1, 2);
  return {rows.narrow(1, 0, s.heads), rows.narrow(1, s.heads, s.kv_heads),
          rows.narrow(1, s.heads + s.kv_heads, s.kv_heads)};
}

}  // namespace

NormWeights::NormWeights(const FlatParameters& parameters, const std::string& module, double epsilon,
                         bool has_bias)
    : weight(parameters.find(module + ".weight")), eps(static_cast<float>(epsilon)) {
  if (has_bias) bias = parameters.find(module + ".bias");
}

NormResult norm(const at::Tensor& input, const at::Tensor& residual, const NormWeights& weights) {
  const int64_t rows = input.size(0), cols = input.size(1);
  NormResult r;
  r.y = at::empty_like(input);
  r.rstd = at::empty({rows}, input.options().dtype(at::kFloat));
  r.sum = residual.defined() ? at::empty_like(input) : input;
  const bool layer = weights.bias.value.defined();
  if (layer) r.mean = at::empty({rows}, r.rstd.options());
  by_type(input, [&](auto t) {
    using T = MSO_TYPE(t);
    const T *x = pointer<T>(input), *res = pointer<T>(residual), *w = pointer<T>(weights.weight.value);
    if (layer)
      layer_norm(x, res, pointer<T>(r.sum), w, pointer<T>(weights.bias.value), weights.eps, pointer<T>(r.y),
                 pointer<float>(r.mean), pointer<float>(r.rstd), rows, cols);
    else
      rms_norm(x, res, pointer<T>(r.sum), w, weights.eps, pointer<T>(r.y), pointer<float>(r.rstd), rows,
               cols);
  });
  return r;
}

void norm_backward(const at::Tensor& grad_y, const NormResult& forward, const NormWeights& weights,
                   at::Tensor& grad_x, GradientSink& sink) {
  const int64_t rows = grad_y.size(0), cols = grad_y.size(1);
  Partial weight_sum(weights.weight.gradient), bias_sum(weights.bias.gradient);
  by_type(grad_y, [&](auto t) {
    using T = MSO_TYPE(t);
    for (int64_t r = 0; r < rows; r += kBlock) {
      const int64_t n = std::min(kBlock, rows - r), o = r * cols;
      float *w = weight_sum.begin(), *b = bias_sum.begin();
      if (weights.bias.value.defined())
        layer_norm_backward(pointer<T>(grad_y) + o, pointer<T>(forward.sum) + o,
                            pointer<float>(forward.mean) + r, pointer<float>(forward.rstd) + r,
                            pointer<T>(weights.weight.value), pointer<T>(grad_x) + o, true, w, b, n, cols);
      else
        rms_norm_backward(pointer<T>(grad_y) + o, pointer<T>(forward.sum) + o,
                          pointer<float>(forward.rstd) + r, pointer<T>(weights.weight.value),
                          pointer<T>(grad_x) + o, true, w, n, cols);
      weight_sum.end();
      bias_sum.end();
    }
  });
  sink.ready(weights.bias.index);
  sink.ready(weights.weight.index);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  at::Tensor y = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  by_type(gate_up, [&](auto t) {
    swiglu(pointer<MSO_TYPE(t)>(gate_up), pointer<MSO_TYPE(t)>(y), y.size(0), y.size(1));
  });
  return y;
}

void swiglu_backward(at::Tensor& grad_y, at::Tensor& gate_up) {
  by_type(grad_y, [&](auto t) {
    swiglu_backward(pointer<MSO_TYPE(t)>(grad_y), pointer<MSO_TYPE(t)>(gate_up), grad_y.size(0),
                    grad_y.size(1));
  });
}

at::Tensor activate(const at::Tensor& x, Activation activation) {
  at::Tensor y = at::empty_like(x);
  by_type(x, [&](auto t) {
    using T = MSO_TYPE(t);
    if (activation == Activation::kQuickGelu)
      quick_gelu(pointer<T>(x), pointer<T>(y), x.numel());
    else
      gelu(pointer<T>(x), pointer<T>(y), x.numel());
  });
  return y;
}

void activate_backward(at::Tensor& grad_y, at::Tensor& x, Activation activation, at::Tensor bias_gradient) {
  const int64_t rows = x.size(0), cols = x.size(1);
  Partial bias_sum(bias_gradient);
  by_type(x, [&](auto t) {
    using T = MSO_TYPE(t);
    for (int64_t r = 0; r < rows; r += kBlock) {
      const int64_t n = std::min(kBlock, rows - r), o = r * cols;
      float* b = bias_sum.begin();
      if (activation == Activation::kQuickGelu)
        quick_gelu_backward(pointer<T>(grad_y) + o, pointer<T>(x) + o, b, n, cols);
      else
        gelu_backward(pointer<T>(grad_y) + o, pointer<T>(x) + o, b, n, cols);
      bias_sum.end();
    }
  });
}

void rotary(at::Tensor& qkv, int64_t heads, int64_t head_dim, const at::Tensor& cos, const at::Tensor& sin,
            bool inverse) {
  by_type(qkv, [&](auto t) {
    rotary(pointer<MSO_TYPE(t)>(qkv), qkv.size(1), heads, head_dim, pointer<float>(cos), pointer<float>(sin),
           inverse, qkv.size(0));
  });
}

double cross_entropy(at::Tensor& logits, const int64_t* targets, bool gradient) {
  return by_type(logits, [&](auto t) {
    return cross_entropy(pointer<MSO_TYPE(t)>(logits), targets, gradient, logits.size(0), logits.size(1));
  });
}

void add_column_sums(const at::Tensor& x, at::Tensor sums) {
  const int64_t rows = x.size(0), cols = x.size(1);
  Partial sum(sums);
  by_type(x, [&](auto t) {
    for (int64_t r = 0; r < rows; r += kBlock) {
      column_sums(pointer<MSO_TYPE(t)>(x) + r * cols, sum.begin(), std::min(kBlock, rows - r), cols);
      sum.end();
    }
  });
}

void add_in_place(at::Tensor& y, const at::Tensor& x) {
  if (y.scalar_type() == x.scalar_type()) {
    by_type(x, [&](auto t) { accumulate(pointer<MSO_TYPE(t)>(x), pointer<MSO_TYPE(t)>(y), x.numel()); });
  } else {
    accumulate(pointer<BFloat16Bits>(x), pointer<float>(y), x.numel());
  }
}

void embedding_gradient(const at::Tensor& gradient, const int64_t* tokens, const std::vector<bool>& skip,
                        at::Tensor table_gradient) {
  const int64_t cols = gradient.size(1);
  float* table = pointer<float>(table_gradient);
  by_type(gradient, [&](auto t) {
    using T = MSO_TYPE(t);
    for (int64_t r = 0; r < gradient.size(0); ++r)
      if (!skip[r])
        accumulate(static_cast<const T*>(pointer<T>(gradient) + r * cols), table + tokens[r] * cols, cols);
  });
}

AttentionResult attention(const at::Tensor& qkv, const std::vector<int64_t>& lengths,
                          const AttentionShape& shape) {
  const std::vector<Run> runs = runs_of(lengths);
  const int64_t width = shape.heads * shape.head_dim;
  AttentionResult result;
  if (runs.size() != 1) result.out = at::empty({qkv.size(0), width}, qkv.options());
  for (const Run& run : runs) {
    auto [q, k, v] = views_of(qkv, run, shape);
    auto [block, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, shape.causal);
    // The result is laid out as [count, length, heads, head_dim]: rows of T again without a copy.
    at::Tensor rows = block.transpose(1, 2).reshape({run.count * run.length, width});
    if (runs.size() == 1)
      result.out = rows;
    else
      result.out.narrow(0, run.begin, rows.size(0)).copy_(rows);
    result.sums.push_back(std::move(sums));
  }
  return result;
}

at::Tensor attention_backward(const at::Tensor& grad_out, const at::Tensor& qkv,
                              const AttentionResult& forward, const std::vector<int64_t>& lengths,
                              const AttentionShape& shape) {
  at::Tensor grad_qkv = at::empty_like(qkv);
  const std::vector<Run> runs = runs_of(lengths);
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    auto [q, k, v] = views_of(qkv, run, shape);
    auto heads_of = [&](const at::Tensor& rows) {
      return rows.narrow(0, run.begin, run.count * run.length)
          .view({run.count, run.length, shape.heads, shape.head_dim})
          .transpose(1, 2);
    };
    auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(grad_out), q, k, v, heads_of(forward.out), forward.sums[i], 0.0, shape.causal);
    auto [out_q, out_k, out_v] = views_of(grad_qkv, run, shape);
    out_q.copy_(grad_q);
    out_k.copy_(grad_k);
    out_v.copy_(grad_v);
  }
  return grad_qkv;
}

}  // namespace mso
