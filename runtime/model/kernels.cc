#include "model/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/simd.h"

// Vectors are passed by value only between functions that are inlined, so the ABI note does not apply.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace mso {

namespace {

#define MSO_INLINE static inline __attribute__((always_inline))

// 16 lanes whatever the instruction set: the compiler splits them, so all clones give the same bits.
constexpr int64_t kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IVec __attribute__((vector_size(64)));
typedef uint32_t UVec __attribute__((vector_size(64)));
typedef uint16_t HVec __attribute__((vector_size(32)));

MSO_INLINE Vec splat(float x) {
  return Vec{} + x;
}
MSO_INLINE Vec select(IVec mask, Vec a, Vec b) {
  return (Vec)(((IVec)a & mask) | ((IVec)b & ~mask));
}
MSO_INLINE Vec vmin(Vec a, Vec b) {
  return select(a < b, a, b);
}
MSO_INLINE Vec vmax(Vec a, Vec b) {
  return select(a > b, a, b);
}

MSO_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
MSO_INLINE void store(float* p, Vec v) {
  __builtin_memcpy(p, &v, sizeof v);
}
MSO_INLINE Vec load(const BFloat16Bits* p) {
  HVec h;
  __builtin_memcpy(&h, p, sizeof h);
  return (Vec)(__builtin_convertvector(h, UVec) << 16);
}
MSO_INLINE void store(BFloat16Bits* p, Vec v) {
  UVec u = (UVec)v;
  UVec rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  UVec nan = (UVec)(v != v);
  HVec h = __builtin_convertvector((rounded & ~nan) | (0x7fc0 & nan), HVec);
  __builtin_memcpy(p, &h, sizeof h);
}
// The first n lanes (the others are zero, or left alone). Whole vectors are marked by their type, Full, so
// that the main loop has no trace of the rest.
using Full = std::integral_constant<int64_t, kLanes>;
template <typename T, typename N>
MSO_INLINE Vec load(const T* p, N n) {
  if constexpr (std::is_same_v<N, Full>) {
    return load(p);
  } else {
    T lanes[kLanes] = {};
    std::memcpy(lanes, p, n * sizeof(T));
    return load(lanes);
  }
}
template <typename T, typename N>
MSO_INLINE void store(T* p, Vec v, N n) {
  if constexpr (std::is_same_v<N, Full>) {
    store(p, v);
  } else {
    T lanes[kLanes];
    store(lanes, v);
    std::memcpy(p, lanes, n * sizeof(T));
  }
}
// Lanes past n become `fill`.
template <typename N>
MSO_INLINE Vec keep(Vec v, N n, float fill) {
  if constexpr (!std::is_same_v<N, Full>) {
    float lanes[kLanes];
    store(lanes, v);
    for (int64_t i = n; i < kLanes; ++i) lanes[i] = fill;
    return load(lanes);
  }
  return v;
}
// body(i, n) over [0, count) in steps of 16. Bodies are marked MSO_BODY so that they are inlined into the
// clones and compiled for their instruction sets.
#define MSO_BODY(i, n) [&](int64_t i, auto n) __attribute__((always_inline))
template <typename Body>
MSO_INLINE void for_lanes(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full{});
  if (i < count) body(i, count - i);
}

MSO_INLINE float sum_lanes(Vec v) {
  float a[kLanes];
  store(a, v);
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) a[i] += a[i + step];
  return a[0];
}
MSO_INLINE float max_lanes(Vec v) {
  float a[kLanes];
  store(a, v);
  float m = a[0];
  for (int i = 1; i < kLanes; ++i) m = a[i] > m ? a[i] : m;
  return m;
}

// e^x to about 1 ulp for x in [-87, 88], 0 or large beyond (Cephes expf: reduction by ln 2 in two parts,
// degree 5).
MSO_INLINE Vec vexp(Vec x) {
  Vec clamped = vmin(vmax(x, splat(-87.33654f)), splat(88.0f));
  Vec shifted =
      clamped * 1.44269504088896341f + 12582912.0f;  // 1.5 · 2^23: rounds to an integer in the low bits
  Vec n = shifted - 12582912.0f;
  Vec r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  IVec exponent = ((IVec)shifted - 0x4b400000 + 127) << 23;
  return p * (Vec)exponent;
}
MSO_INLINE Vec sigmoid(Vec x) {
  return 1.0f / (1.0f + vexp(-x));
}

// erf(x), rational minimax approximation on [-3.83, 3.83], where it is within 6e-8 of ±1 (Eigen's
// generic_fast_erf_float), error below 4e-7.
MSO_INLINE Vec verf(Vec value) {
  Vec x = vmin(vmax(value, splat(-3.8325068f)), splat(3.8325068f));
  Vec s = x * x;
  Vec p = splat(-2.72614225801306e-10f);
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  Vec q = splat(-1.45660718464996e-05f);
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return x * p / q;
}

template <typename T>
MSO_INLINE void rms_norm_rows(const T* input, const T* residual, T* sum, const T* weight, float eps, T* y,
                              float* rstd, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, input += cols, y += cols) {
    Vec squares = {};
    const T* x = input;
    if (residual != nullptr) {
      for_lanes(
          cols, MSO_BODY(i, n) {
            store(sum + i, load(input + i, n) + load(residual + i, n), n);
            Vec v = load(sum + i, n);  // as rounded
            squares += v * v;
          });
      x = sum;
      residual += cols;
      sum += cols;
    } else {
      for_lanes(
          cols, MSO_BODY(i, n) {
            Vec v = load(x + i, n);
            squares += v * v;
          });
    }
    const float scale = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(cols) + eps);
    rstd[r] = scale;
    for_lanes(
        cols, MSO_BODY(i, n) { store(y + i, load(weight + i, n) * (load(x + i, n) * scale), n); });
  }
}

template <typename T>
MSO_INLINE void rms_norm_backward_rows(const T* grad_y, const T* x, const float* rstd, const T* weight,
                                       T* grad_x, bool accumulate, float* weight_partial, int64_t rows,
                                       int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, grad_y += cols, x += cols, grad_x += cols) {
    const float scale = rstd[r];
    Vec dots = {};
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec dy = load(grad_y + i, n), hat = load(x + i, n) * scale;
          dots += dy * load(weight + i, n) * hat;
          if (weight_partial != nullptr) store(weight_partial + i, load(weight_partial + i, n) + dy * hat, n);
        });
    const float mean = sum_lanes(dots) / static_cast<float>(cols);
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec dx = (load(grad_y + i, n) * load(weight + i, n) - load(x + i, n) * scale * mean) * scale;
          if (accumulate) dx += load(grad_x + i, n);
          store(grad_x + i, dx, n);
        });
  }
}

template <typename T>
MSO_INLINE void layer_norm_rows(const T* input, const T* residual, T* sum, const T* weight, const T* bias,
                                float eps, T* y, float* mean, float* rstd, int64_t rows, int64_t cols) {
  const float inverse = 1.0f / static_cast<float>(cols);
  for (int64_t r = 0; r < rows; ++r, input += cols, y += cols) {
    Vec total = {};
    const T* x = input;
    if (residual != nullptr) {
      for_lanes(
          cols, MSO_BODY(i, n) {
            store(sum + i, load(input + i, n) + load(residual + i, n), n);
            total += load(sum + i, n);
          });
      x = sum;
      residual += cols;
      sum += cols;
    } else {
      for_lanes(
          cols, MSO_BODY(i, n) { total += load(x + i, n); });
    }
    const float centre = sum_lanes(total) * inverse;
    Vec squares = {};
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec v = keep(load(x + i, n) - centre, n, 0.0f);
          squares += v * v;
        });
    const float scale = 1.0f / std::sqrt(sum_lanes(squares) * inverse + eps);
    mean[r] = centre;
    rstd[r] = scale;
    for_lanes(
        cols, MSO_BODY(i, n) {
          store(y + i, (load(x + i, n) - centre) * scale * load(weight + i, n) + load(bias + i, n), n);
        });
  }
}

template <typename T>
MSO_INLINE void layer_norm_backward_rows(const T* grad_y, const T* x, const float* mean, const float* rstd,
                                         const T* weight, T* grad_x, bool accumulate, float* weight_partial,
                                         float* bias_partial, int64_t rows, int64_t cols) {
  const float inverse = 1.0f / static_cast<float>(cols);
  for (int64_t r = 0; r < rows; ++r, grad_y += cols, x += cols, grad_x += cols) {
    const float scale = rstd[r], centre = mean[r];
    Vec dots = {}, sums = {};
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec dy = load(grad_y + i, n), hat = (load(x + i, n) - centre) * scale, g = dy * load(weight + i, n);
          dots += g * hat;  // g is zero past the row
          sums += g;
          if (weight_partial != nullptr) store(weight_partial + i, load(weight_partial + i, n) + dy * hat, n);
          if (bias_partial != nullptr) store(bias_partial + i, load(bias_partial + i, n) + dy, n);
        });
    const float dot = sum_lanes(dots) * inverse, total = sum_lanes(sums) * inverse;
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec hat = (load(x + i, n) - centre) * scale;
          Vec dx = (load(grad_y + i, n) * load(weight + i, n) - total - hat * dot) * scale;
          if (accumulate) dx += load(grad_x + i, n);
          store(grad_x + i, dx, n);
        });
  }
}

template <typename T>
MSO_INLINE void swiglu_rows(const T* gate_up, T* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * cols, y += cols) {
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec g = load(gate_up + i, n);
          store(y + i, g * sigmoid(g) * load(gate_up + cols + i, n), n);
        });
  }
}

template <typename T>
MSO_INLINE void swiglu_backward_rows(T* grad_y, T* gate_up, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, gate_up += 2 * cols, grad_y += cols) {
    T* up = gate_up + cols;
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec g = load(gate_up + i, n), u = load(up + i, n), dy = load(grad_y + i, n), s = sigmoid(g),
              silu = g * s;
          store(grad_y + i, silu * u, n);
          store(up + i, dy * silu, n);
          store(gate_up + i, dy * u * (s * (1.0f + g * (1.0f - s))), n);
        });
  }
}

// Value and slope of the two activations, so that one pair of loops serves both.
struct QuickGelu {
  MSO_INLINE Vec value(Vec x) { return x * sigmoid(x * 1.702f); }
  MSO_INLINE Vec slope(Vec x) {
    Vec s = sigmoid(x * 1.702f);
    return s * (1.0f + 1.702f * x * (1.0f - s));
  }
};
struct Gelu {
  MSO_INLINE Vec value(Vec x) { return 0.5f * x * (1.0f + verf(x * 0.70710678118654752f)); }
  MSO_INLINE Vec slope(Vec x) {
    return 0.5f * (1.0f + verf(x * 0.70710678118654752f)) + x * vexp(-0.5f * x * x) * 0.39894228040143268f;
  }
};

template <typename Activation, typename T>
MSO_INLINE void activate(const T* x, T* y, int64_t count) {
  for_lanes(
      count, MSO_BODY(i, n) { store(y + i, Activation::value(load(x + i, n)), n); });
}

template <typename Activation, typename T>
MSO_INLINE void activate_backward(T* grad_y, T* x, float* bias_partial, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, grad_y += cols, x += cols) {
    for_lanes(
        cols, MSO_BODY(i, n) {
          Vec v = load(x + i, n), dx = load(grad_y + i, n) * Activation::slope(v);
          store(grad_y + i, Activation::value(v), n);
          store(x + i, dx, n);
          if (bias_partial != nullptr) store(bias_partial + i, load(bias_partial + i, n) + dx, n);
        });
  }
}

template <typename T>
MSO_INLINE void rotary_rows(T* x, int64_t stride, int64_t heads, int64_t head_dim, const float* cos,
                            const float* sin, bool inverse, int64_t rows) {
  const int64_t half = head_dim / 2;
  const float sign = inverse ? -1.0f : 1.0f;
  for (int64_t r = 0; r < rows; ++r, x += stride, cos += half, sin += half) {
    for (int64_t h = 0; h < heads; ++h) {
      T* first = x + h * head_dim;
      T* second = first + half;
      for_lanes(
          half, MSO_BODY(i, n) {
            Vec a = load(first + i, n), b = load(second + i, n), c = load(cos + i, n),
                s = load(sin + i, n) * sign;
            store(first + i, a * c - b * s, n);
            store(second + i, b * c + a * s, n);
          });
    }
  }
}

template <typename T>
MSO_INLINE double cross_entropy_rows(T* logits, const int64_t* targets, bool gradient, int64_t rows,
                                     int64_t cols) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r, logits += cols) {
    T* target = logits + targets[r];
    const float target_logit = load(target, int64_t{1})[0];
    Vec most = splat(target_logit);
    for_lanes(
        cols, MSO_BODY(i, n) { most = vmax(most, keep(load(logits + i, n), n, target_logit)); });
    const float peak = max_lanes(most);
    // Lane sums are added up in double every 1,024 columns: exact enough for any vocabulary.
    double total = 0;
    for (int64_t begin = 0; begin < cols; begin += 1024) {
      T* part = logits + begin;
      Vec sums = {};
      for_lanes(
          cols - begin < 1024 ? cols - begin : 1024,
          MSO_BODY(i, n) { sums += keep(vexp(load(part + i, n) - peak), n, 0.0f); });
      total += sum_lanes(sums);
    }
    loss += std::log(total) + static_cast<double>(peak) - static_cast<double>(target_logit);
    if (!gradient) continue;
    const float scale = static_cast<float>(1.0 / total);
    const float at_target =
        static_cast<float>(std::exp(static_cast<double>(target_logit) - peak) / total - 1.0);
    for_lanes(
        cols, MSO_BODY(i, n) { store(logits + i, vexp(load(logits + i, n) - peak) * scale, n); });
    store(target, splat(at_target), int64_t{1});
  }
  return loss;
}

template <typename T>
MSO_INLINE void add_bias_rows(T* x, const T* bias, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols)
    for_lanes(
        cols, MSO_BODY(i, n) { store(x + i, load(x + i, n) + load(bias + i, n), n); });
}

template <typename T>
MSO_INLINE void column_sums_rows(const T* x, float* sums, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols)
    for_lanes(
        cols, MSO_BODY(i, n) { store(sums + i, load(sums + i, n) + load(x + i, n), n); });
}

template <typename From, typename To>
MSO_INLINE void add_all(const From* x, To* y, int64_t count) {
  for_lanes(
      count, MSO_BODY(i, n) { store(y + i, load(y + i, n) + load(x + i, n), n); });
}

}  // namespace

// The clones: plain functions, since templates cannot be cloned.
#define MSO_DEFINE_KERNELS(T)                                                                                \
  MSO_SIMD_CLONES void rms_norm(const T* input, const T* residual, T* sum, const T* weight, float eps, T* y, \
                                float* rstd, int64_t rows, int64_t cols) {                                   \
    rms_norm_rows(input, residual, sum, weight, eps, y, rstd, rows, cols);                                   \
  }                                                                                                          \
  MSO_SIMD_CLONES void rms_norm_backward(const T* grad_y, const T* x, const float* rstd, const T* weight,    \
                                         T* grad_x, bool accumulate, float* weight_partial, int64_t rows,    \
                                         int64_t cols) {                                                     \
    rms_norm_backward_rows(grad_y, x, rstd, weight, grad_x, accumulate, weight_partial, rows, cols);         \
  }                                                                                                          \
  MSO_SIMD_CLONES void layer_norm(const T* input, const T* residual, T* sum, const T* weight, const T* bias, \
                                  float eps, T* y, float* mean, float* rstd, int64_t rows, int64_t cols) {   \
    layer_norm_rows(input, residual, sum, weight, bias, eps, y, mean, rstd, rows, cols);                     \
  }                                                                                                          \
  MSO_SIMD_CLONES void layer_norm_backward(                                                                  \
      const T* grad_y, const T* x, const float* mean, const float* rstd, const T* weight, T* grad_x,         \
      bool accumulate, float* weight_partial, float* bias_partial, int64_t rows, int64_t cols) {             \
    layer_norm_backward_rows(grad_y, x, mean, rstd, weight, grad_x, accumulate, weight_partial,              \
                             bias_partial, rows, cols);                                                      \
  }                                                                                                          \
  MSO_SIMD_CLONES void swiglu(const T* gate_up, T* y, int64_t rows, int64_t cols) {                          \
    swiglu_rows(gate_up, y, rows, cols);                                                                     \
  }                                                                                                          \
  MSO_SIMD_CLONES void swiglu_backward(T* grad_y, T* gate_up, int64_t rows, int64_t cols) {                  \
    swiglu_backward_rows(grad_y, gate_up, rows, cols);                                                       \
  }                                                                                                          \
  MSO_SIMD_CLONES void quick_gelu(const T* x, T* y, int64_t count) {                                         \
    activate<QuickGelu>(x, y, count);                                                                        \
  }                                                                                                          \
  MSO_SIMD_CLONES void gelu(const T* x, T* y, int64_t count) {                                               \
    activate<Gelu>(x, y, count);                                                                             \
  }                                                                                                          \
  MSO_SIMD_CLONES void quick_gelu_backward(T* grad_y, T* x, float* bias_partial, int64_t rows,               \
                                           int64_t cols) {                                                   \
    activate_backward<QuickGelu>(grad_y, x, bias_partial, rows, cols);                                       \
  }                                                                                                          \
  MSO_SIMD_CLONES void gelu_backward(T* grad_y, T* x, float* bias_partial, int64_t rows, int64_t cols) {     \
    activate_backward<Gelu>(grad_y, x, bias_partial, rows, cols);                                            \
  }                                                                                                          \
  MSO_SIMD_CLONES void rotary(T* x, int64_t stride, int64_t heads, int64_t head_dim, const float* cos,       \
                              const float* sin, bool inverse, int64_t rows) {                                \
    rotary_rows(x, stride, heads, head_dim, cos, sin, inverse, rows);                                        \
  }                                                                                                          \
  MSO_SIMD_CLONES double cross_entropy(T* logits, const int64_t* targets, bool gradient, int64_t rows,       \
                                       int64_t cols) {                                                       \
    return cross_entropy_rows(logits, targets, gradient, rows, cols);                                        \
  }                                                                                                          \
  MSO_SIMD_CLONES void add_bias(T* x, const T* bias, int64_t rows, int64_t cols) {                           \
    add_bias_rows(x, bias, rows, cols);                                                                      \
  }                                                                                                          \
  MSO_SIMD_CLONES void column_sums(const T* x, float* sums, int64_t rows, int64_t cols) {                    \
    column_sums_rows(x, sums, rows, cols);                                                                   \
  }                                                                                                          \
  MSO_SIMD_CLONES void accumulate(const T* x, T* y, int64_t count) {                                         \
    add_all(x, y, count);                                                                                    \
  }

MSO_DEFINE_KERNELS(float)
MSO_DEFINE_KERNELS(BFloat16Bits)

MSO_SIMD_CLONES void accumulate(const BFloat16Bits* x, float* sum, int64_t count) {
  add_all(x, sum, count);
}

MSO_SIMD_CLONES void to_bf16(const float* from, BFloat16Bits* to, int64_t count) {
  for_lanes(
      count, MSO_BODY(i, n) { store(to + i, load(from + i, n), n); });
}

}  // namespace mso
