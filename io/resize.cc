#include "io/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "io/resize_kernels.h"
#include "io/transpose_bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace mso {
namespace {

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double support_of(Resample filter) {
  switch (filter) {
    case Resample::kLanczos:
      return 3.0;
    case Resample::kBicubic:
      return 2.0;
    case Resample::kBilinear:
    case Resample::kHamming:
      return 1.0;
    case Resample::kBox:
    case Resample::kNearest:
      return 0.5;
  }
  return 0.5;
}

double weight_of(Resample filter, double x) {
  switch (filter) {
    case Resample::kBox:
    case Resample::kNearest:
      return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case Resample::kBilinear:
      x = std::fabs(x);
      return x < 1.0 ? 1.0 - x : 0.0;
    case Resample::kHamming:
      x = std::fabs(x);
      if (x == 0.0) return 1.0;
      if (x >= 1.0) return 0.0;
      x *= std::numbers::pi;
      return std::sin(x) / x * (0.54f + 0.46f * std::cos(x));  // single-precision constants, as Pillow's
    case Resample::kBicubic: {
      constexpr double a = -0.5;
      x = std::fabs(x);
      if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
      if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
      return 0.0;
    }
    case Resample::kLanczos:
      return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
  }
  return 0.0;
}

// The inputs of one output position and their weights.
class Taps {
 public:
  Taps(int in_size, int out_size, Resample filter, std::vector<double>* weights)
      : in_size_(in_size),
        scale_(static_cast<double>(in_size) / out_size),
        filter_(filter),
        weights_(*weights) {
    const double filter_scale = std::max(scale_, 1.0);
    support_ = support_of(filter) * filter_scale;
    inverse_ = 1.0 / filter_scale;
    weights_.resize(2 * size_t(pairs()));
  }
  // Of two taps, with the first made even.
  int pairs() const { return static_cast<int>(std::ceil(support_)) + 2; }

  void at(int position) {
    const double center = (position + 0.5) * scale_;
    from = std::max(static_cast<int>(center - support_ + 0.5), 0);
    count = std::min(static_cast<int>(center + support_ + 0.5), in_size_) - from;
    double sum = 0;
    for (int t = 0; t < count; ++t) {
      weights_[t] = weight_of(filter_, (t + from - center + 0.5) * inverse_);
      sum += weights_[t];
    }
    if (sum != 0.0)
      for (int t = 0; t < count; ++t) weights_[t] /= sum;
  }
  double weight(int t) const { return weights_[t]; }

  int from = 0, count = 0;

 private:
  int in_size_;
  double scale_, support_ = 0, inverse_ = 0;
  Resample filter_;
  std::vector<double>& weights_;
};

// As many bits after the point as the largest weight of the whole side lets fit into 16 with the sign (ATen's
// _compute_index_ranges_int16_weights).
int narrow_fraction_bits(Taps taps, int out_size) {
  double largest = 0;
  for (int i = 0; i < out_size; ++i) {
    taps.at(i);
    for (int t = 0; t < taps.count; ++t) largest = std::max(largest, taps.weight(t));
  }
  int bits = 0;
  while (bits < kResizeFractionBits && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < 1 << 15) ++bits;
  return bits;
}

// The weights of output positions begin … begin + length − 1. `even`: first positions are made even.
struct Weights {
  PairedWeights paired;
  int input_begin = 0, input_end = 0;  // the inputs that are used
  std::vector<double> scratch;

  void compute(int in_size, int out_size, int begin, int length, Resample filter, ImageBackend backend,
               bool even) {
    Taps taps(in_size, out_size, filter, &scratch);
    paired.wide = backend == ImageBackend::kPil;
    paired.fraction_bits = paired.wide ? kResizeFractionBits : narrow_fraction_bits(taps, out_size);
    paired.pairs = taps.pairs();
    paired.first.resize(length);
    paired.used.resize(length);
    paired.low.assign(size_t(length) * paired.pairs, 0);
    paired.high.assign(paired.wide ? size_t(length) * paired.pairs : 0, 0);
    input_begin = in_size;
    input_end = 0;
    for (int i = 0; i < length; ++i) {
      taps.at(begin + i);
      const int before = even ? taps.from % 2 : 0;
      uint32_t* low = paired.low.data() + size_t(i) * paired.pairs;
      uint32_t* high = paired.wide ? paired.high.data() + size_t(i) * paired.pairs : nullptr;
      for (int t = 0; t < taps.count; ++t) {
        const double w = taps.weight(t) * (1 << paired.fraction_bits);
        const int32_t fixed = static_cast<int32_t>(w < 0 ? w - 0.5 : w + 0.5);
        const int pair = (t + before) / 2, shift = (t + before) % 2 * 16;
        low[pair] |= static_cast<uint32_t>(fixed & (paired.wide ? 0x7FFF : 0xFFFF)) << shift;
        if (high) high[pair] |= static_cast<uint32_t>(fixed >> 15 & 0xFFFF) << shift;
      }
      paired.first[i] = taps.from - before;
      paired.used[i] = (taps.count + before + 1) / 2;
      input_begin = std::min(input_begin, taps.from - before);
      input_end = std::max(input_end, taps.from + taps.count);
    }
  }
};

// ---- passes ----------------------------------------------------------------------------
// Input of sixteen rows, turned over, brought into pairs of positions: see ResizeKernels::horizontal.
void make_pairs(const uint8_t* columns, size_t positions, uint8_t* to) {
  for (size_t p = 0; p < positions; p += 2, columns += 6 * kResizeLanes)
    for (int c = 0; c < 3; ++c, to += 2 * kResizeLanes) {
      const uint8_t* a = columns + c * kResizeLanes;
      const uint8_t* b = a + 3 * kResizeLanes;
#ifdef __SSE2__
      const __m128i va = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
      const __m128i vb = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi8(va, vb));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), _mm_unpackhi_epi8(va, vb));
#else
      for (int i = 0; i < kResizeLanes; ++i) {
        to[2 * i] = a[i];
        to[2 * i + 1] = b[i];
      }
#endif
    }
}

struct Scratch {
  Weights horizontal, vertical;
  std::vector<uint8_t> pairs, turned, padded, middle, row;
};

// Rows of RGB within a larger picture.
struct Rows {
  const uint8_t* data;
  size_t stride;
  int count;
};

// Row 0 of `in` is the window's first row, its first pixel the picture's first.
void horizontal_pass(const Rows& in, const ResizeKernels& kernels, Scratch* s, uint8_t* out,
                     size_t out_stride) {
  const int begin = s->horizontal.input_begin;
  const size_t columns = s->horizontal.input_end - begin, even_columns = columns + columns % 2;
  const size_t out_samples = s->horizontal.paired.first.size() * 3;
  constexpr size_t kChunk = 64;  // columns turned over and paired while they are in the cache
  uint8_t turned_over[kChunk * 3 * kResizeLanes] = {};
  s->pairs.resize(even_columns * 3 * kResizeLanes);
  s->turned.resize(out_samples * kResizeLanes);
  for (int y = 0; y < in.count; y += kResizeLanes) {
    const uint8_t* lines[kResizeLanes];
    for (int i = 0; i < kResizeLanes; ++i)
      lines[i] = in.data + in.stride * std::min(y + i, in.count - 1) + size_t(begin) * 3;
    for (size_t x = 0; x < columns; x += kChunk) {
      const size_t n = std::min(kChunk, columns - x);
      transpose_in(lines, n * 3, turned_over);
      make_pairs(turned_over, n + n % 2, s->pairs.data() + x * 3 * kResizeLanes);
      for (const uint8_t*& line : lines) line += 3 * kChunk;
    }
    kernels.horizontal(s->pairs.data(), begin, s->horizontal.paired, s->turned.data());
    transpose_out(s->turned.data(), out_samples, std::min(kResizeLanes, in.count - y), out + out_stride * y,
                  out_stride);
  }
}

// Row 0 of `in` is row s->vertical.input_begin of the picture; its stride is a multiple of 64 and there is
// memory for one row more.
void vertical_pass(const Rows& in, size_t samples, const ResizeKernels& kernels, Scratch* s, uint8_t* out,
                   size_t out_stride) {
  s->row.resize((samples + 63) / 64 * 64);
  const PairedWeights& weights = s->vertical.paired;
  for (size_t y = 0; y < weights.first.size(); ++y) {
    kernels.vertical(in.data + in.stride * (weights.first[y] - s->vertical.input_begin), in.stride, weights,
                     static_cast<int>(y), samples, s->row.data());
    std::memcpy(out + out_stride * y, s->row.data(), samples);
  }
}

// Pillow's nearest: positions are accumulated, not multiplied out, and cut off. torchvision's in float.
void nearest_window(const ImageView& image, int width, int height, const Window& window, uint8_t* out,
                    ImageBackend backend) {
  auto positions = [backend](int in_size, int out_size, int begin, int length) {
    const double step = static_cast<double>(in_size) / out_size;
    const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
    double at = step * 0.5;
    std::vector<int> result(length);
    for (int i = 0; i < begin + length; ++i, at += step)
      if (i >= begin)
        result[i - begin] =
            std::clamp(backend == ImageBackend::kPil
                           ? static_cast<int>(at)
                           : static_cast<int>(std::floor(static_cast<float>((i + 0.5) * scale))),
                       0, in_size - 1);
    return result;
  };
  const auto xs = positions(image.width, width, window.x, window.width);
  const auto ys = positions(image.height, height, window.y, window.height);
  for (const int y : ys)
    for (const int x : xs) {
      const uint8_t* p = image.rgb + (size_t(y) * image.width + x) * 3;
      *out++ = p[0];
      *out++ = p[1];
      *out++ = p[2];
    }
}

}  // namespace

void resize_window(const ImageView& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out, ImageBackend backend, const ResizeKernels& kernels) {
  if (image.width <= 0 || image.height <= 0 || width <= 0 || height <= 0 || window.x < 0 || window.y < 0 ||
      window.width <= 0 || window.height <= 0 || window.width > width - window.x ||
      window.height > height - window.y)
    throw Error("cannot resize: a picture without pixels, or a window outside of the result",
                std::to_string(image.width) + "×" + std::to_string(image.height) + " to " +
                    std::to_string(width) + "×" + std::to_string(height));
  const size_t in_stride = size_t(image.width) * 3, out_samples = size_t(window.width) * 3;
  const bool same_width = width == image.width, same_height = height == image.height;
  if (same_width && same_height) {
    for (int y = 0; y < window.height; ++y)
      std::memcpy(out + out_samples * y, image.rgb + in_stride * (window.y + y) + size_t(window.x) * 3,
                  out_samples);
    return;
  }
  const bool torchvision = backend == ImageBackend::kTorchvision;
  if (torchvision) {
    if (filter == Resample::kBox || filter == Resample::kHamming)
      throw Error("torchvision has no resampling of this kind", filter == Resample::kBox ? "box" : "hamming",
                  "nearest, bilinear, bicubic and lanczos it has", ExitCode::kBadUsage);
    if (std::max(width, height) > 1 << 24)
      throw Error("picture is too narrow to resize",
                  std::to_string(image.width) + "×" + std::to_string(image.height) + " pixels", "delete it",
                  ExitCode::kBadData);
  }
  if (filter == Resample::kNearest) return nearest_window(image, width, height, window, out, backend);

  thread_local Scratch s;
  int row_begin = window.y, row_end = window.y + window.height;
  if (!same_height) {
    s.vertical.compute(image.height, height, window.y, window.height, filter, backend, false);
    row_begin = s.vertical.input_begin;
    row_end = s.vertical.input_end;
  }
  int column_begin = window.x, column_end = window.x + window.width;
  if (!same_width) {
    s.horizontal.compute(image.width, width, window.x, window.width, filter, backend, true);
    column_begin = s.horizontal.input_begin;
    column_end = s.horizontal.input_end;
  }
  const Rows source{image.rgb + in_stride * row_begin, in_stride, row_end - row_begin};
  if (same_height) return horizontal_pass(source, kernels, &s, out, out_samples);

  // What the vertical pass reads: whole vectors a row, and one row more.
  const bool vertical_first =
      same_width || (!torchvision && image.height - height > 2 * std::max(image.width - width, 0));
  const size_t samples = vertical_first ? size_t(column_end - column_begin) * 3 : out_samples;
  const size_t stride = (samples + 63) / 64 * 64;
  s.padded.resize(stride * (source.count + 1));
  if (!vertical_first) {
    horizontal_pass(source, kernels, &s, s.padded.data(), stride);
    return vertical_pass({s.padded.data(), stride, source.count}, samples, kernels, &s, out, out_samples);
  }
  for (int y = 0; y < source.count; ++y)
    std::memcpy(s.padded.data() + stride * y, source.data + in_stride * y + size_t(column_begin) * 3,
                samples);
  const Rows padded{s.padded.data(), stride, source.count};
  if (same_width) return vertical_pass(padded, samples, kernels, &s, out, out_samples);
  s.middle.resize(samples * window.height);
  vertical_pass(padded, samples, kernels, &s, s.middle.data(), samples);
  // The middle picture begins at the first column that is needed.
  for (int& first : s.horizontal.paired.first) first -= column_begin;
  s.horizontal.input_begin -= column_begin;
  s.horizontal.input_end -= column_begin;
  horizontal_pass({s.middle.data(), samples, window.height}, kernels, &s, out, out_samples);
}

void resize_window(const ImageView& image, int width, int height, Resample filter, const Window& window,
                   uint8_t* out, ImageBackend backend) {
  resize_window(image, width, height, filter, window, out, backend, resize_kernels());
}

Image resize(const ImageView& image, int width, int height, Resample filter, ImageBackend backend) {
  Image out;
  out.width = width;
  out.height = height;
  if (width > 0 && height > 0) out.rgb.resize(size_t(width) * height * 3);
  resize_window(image, width, height, filter, {0, 0, width, height}, out.rgb.data(), backend);
  return out;
}

}  // namespace mso
