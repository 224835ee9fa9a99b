#include "io/mel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/simd.h"

namespace mso {
namespace {

constexpr int kLanes = kFftLanes;
constexpr float kFloor = 1e-10f;

// Slaney's scale: linear below 1000 Hz, logarithmic above (hertz_to_mel, mel_to_hertz of audio_utils.py).
double hertz_to_mel(double hertz) {
  return hertz >= 1000 ? 15 + std::log(hertz / 1000) * (27 / std::log(6.4)) : 3 * hertz / 200;
}
double mel_to_hertz(double mel) {
  return mel >= 15 ? 1000 * std::exp(std::log(6.4) / 27 * (mel - 15)) : 200 * mel / 3;
}

// log10 of a normal number above 0, within 2e-6: exponent, and Cephes' logf polynomial for the mantissa in
// [√½, √2).
[[gnu::always_inline]] inline float log10_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  // Adding makes the exponent one larger for mantissas from √2 on.
  const uint32_t shifted = bits - 0x3f3504f3u;
  const float exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float f = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float z = f * f;
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  const float ln = f + (y * f * z - 0.5f * z);
  return ln * 0.43429448190325182765f + exponent * 0.30102999566398119521f;
}

struct Work {
  std::vector<float> re, im, work_re, work_im, power;
};

// `signal` at sample first · hop of the mirrored signal; fills power[k · kLanes + lane].
MSO_SIMD_CLONES void power_spectra(const LaneFft& fft, const float* window, const float* turn,
                                   const float* signal, int hop, int count, float* re, float* im,
                                   float* work_re, float* work_im, float* power) {
  const int n = fft.length();
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane >= count) {
      for (int i = 0; i < n; ++i) re[i * kLanes + lane] = im[i * kLanes + lane] = 0;
      continue;
    }
    const float* from = signal + ptrdiff_t{lane} * hop;
    for (int i = 0; i < n; ++i) {
      re[i * kLanes + lane] = from[2 * i] * window[2 * i];
      im[i * kLanes + lane] = from[2 * i + 1] * window[2 * i + 1];
    }
  }
  const bool in_work = run_fft(fft, re, im, work_re, work_im);
  const float* zr = in_work ? work_re : re;
  const float* zi = in_work ? work_im : im;
  // Even and odd samples were the real and imaginary parts: X[k] = E[k] + e^(−2πi k / 2n) O[k].
  for (int k = 0; k <= n; ++k) {
    const float* ar = zr + size_t(k % n) * kLanes;
    const float* ai = zi + size_t(k % n) * kLanes;
    const float* br = zr + size_t((n - k) % n) * kLanes;
    const float* bi = zi + size_t((n - k) % n) * kLanes;
    const float wr = turn[2 * k], wi = turn[2 * k + 1];
    float* to = power + size_t(k) * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      const float er = 0.5f * (ar[lane] + br[lane]), ei = 0.5f * (ai[lane] - bi[lane]);
      const float odd_r = 0.5f * (ai[lane] + bi[lane]), odd_i = 0.5f * (br[lane] - ar[lane]);
      const float xr = er + (wr * odd_r - wi * odd_i), xi = ei + (wr * odd_i + wi * odd_r);
      to[lane] = xr * xr + xi * xi;
    }
  }
}

// log10 of a mel bin in every lane.
MSO_SIMD_CLONES void log_mel_bin(const float* power, const float* weights, size_t bins, float* out) {
  float sum[kLanes] = {};
  for (size_t k = 0; k < bins; ++k)
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += weights[k] * power[k * kLanes + lane];
  // Silence is −10 to the last bit, wherever it was computed.
  for (int lane = 0; lane < kLanes; ++lane) out[lane] = sum[lane] > kFloor ? log10_of(sum[lane]) : -10.0f;
}

MSO_SIMD_CLONES float largest_of(const float* x, size_t n) {
  float most[kLanes];
  std::fill_n(most, kLanes, -10.0f);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      most[lane] = x[i + lane] > most[lane] ? x[i + lane] : most[lane];
  for (; i < n; ++i) most[0] = std::max(most[0], x[i]);
  return *std::max_element(most, most + kLanes);
}

MSO_SIMD_CLONES void clamp_and_scale(float* x, size_t n, float least) {
  for (size_t i = 0; i < n; ++i) {
    const float v = x[i] > least ? x[i] : least;
    x[i] = (v + 4.0f) * 0.25f;
  }
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error("mel features: " + what, "configuration", "", ExitCode::kBadUsage);
}

}  // namespace

LogMel::LogMel(const MelConfig& c) : config_(c), fft_(std::max(1, c.n_fft / 2)) {
  if (c.feature_size < 1 || c.feature_size > 4096) refuse("feature_size must be from 1 to 4096");
  if (c.sampling_rate < 2 || c.sampling_rate > 1000000) refuse("sampling_rate must be from 2 to 1000000 Hz");
  if (c.n_fft < 4 || c.n_fft > 65536 || c.n_fft % 2 || !fft_.valid())
    refuse("n_fft must be even, from 4 to 65536, and of factors 2, 3 and 5; it is " +
           std::to_string(c.n_fft));
  if (c.hop_length < 1 || c.hop_length > c.n_fft) refuse("hop_length must be from 1 to n_fft");
  if (c.chunk_length < 1 || c.chunk_length > 86400 || c.samples() <= c.n_fft / 2 ||
      c.samples() > int64_t{1} << 30)
    refuse("chunk_length must be from 1 to 86400 s, and longer than half a window");
  if (!std::isfinite(c.padding_value)) refuse("padding_value must be a number");

  const double pi = std::numbers::pi;
  for (int i = 0; i < c.n_fft; ++i)
    window_.push_back(static_cast<float>(0.5 - 0.5 * std::cos(2 * pi * i / c.n_fft)));
  const int bins = c.n_fft / 2 + 1;
  for (int k = 0; k < bins; ++k) {
    turn_.push_back(static_cast<float>(std::cos(2 * pi * k / c.n_fft)));
    turn_.push_back(static_cast<float>(-std::sin(2 * pi * k / c.n_fft)));
  }
  // mel_filter_bank of audio_utils.py.
  const double most = hertz_to_mel(8000);
  std::vector<double> corners(c.feature_size + 2);
  for (int i = 0; i < c.feature_size + 2; ++i) corners[i] = mel_to_hertz(most * i / (c.feature_size + 1));
  const double bin_width = static_cast<double>(c.sampling_rate / 2) / (bins - 1);
  for (int m = 0; m < c.feature_size; ++m) {
    const double low = corners[m], top = corners[m + 1], high = corners[m + 2];
    Filter filter;
    for (int k = 0; k < bins; ++k) {
      const double hertz = bin_width * k;
      const double weight =
          std::max(0.0, std::min((hertz - low) / (top - low), (high - hertz) / (high - top)));
      if (weight <= 0) continue;
      if (filter.weights.empty()) filter.first = k;
      filter.weights.push_back(static_cast<float>(weight * 2 / (high - low)));
    }
    filters_.push_back(std::move(filter));
  }
}

void LogMel::compute_frames(const float* signal, int64_t first, int count, float* out) const {
  thread_local Work work;
  const size_t size = size_t(fft_.length()) * kLanes;
  work.re.resize(size);
  work.im.resize(size);
  work.work_re.resize(size);
  work.work_im.resize(size);
  work.power.resize(size + kLanes);
  power_spectra(fft_, window_.data(), turn_.data(), signal + first * config_.hop_length, config_.hop_length,
                count, work.re.data(), work.im.data(), work.work_re.data(), work.work_im.data(),
                work.power.data());
  for (size_t m = 0; m < filters_.size(); ++m) {
    float values[kLanes];
    log_mel_bin(work.power.data() + size_t(filters_[m].first) * kLanes, filters_[m].weights.data(),
                filters_[m].weights.size(), values);
    std::copy_n(values, count, out + m * config_.frames() + first);
  }
}

void LogMel::compute(std::span<const float> samples, float* out) const {
  const int64_t total = config_.samples(), frames = config_.frames(), half = config_.n_fft / 2;
  const int64_t given = std::min<int64_t>(total, static_cast<int64_t>(samples.size()));
  // Frames behind the sound are of padding alone, all the same; but for those that see its end mirrored.
  int64_t computed = frames;
  if (given + half < total && config_.padding_value == 0)
    computed = std::min(frames, (given + half + config_.hop_length - 1) / config_.hop_length);
  const int64_t needed = computed > 0 ? (computed - 1) * config_.hop_length + config_.n_fft : 0;

  thread_local std::vector<float> signal;  // mirrored: signal[i] is sample i − half
  signal.resize(needed);
  const auto sample = [&](int64_t i) { return i < given ? samples[i] : config_.padding_value; };
  for (int64_t i = 0; i < std::min(half, needed); ++i) signal[i] = sample(half - i);
  const int64_t plain = std::clamp<int64_t>(std::min(given, needed - half), 0, total);
  if (plain > 0) std::copy_n(samples.begin(), plain, signal.begin() + half);
  for (int64_t i = std::max<int64_t>(half + plain, half); i < needed; ++i) {
    const int64_t at = i - half;
    signal[i] = sample(at < total ? at : 2 * (total - 1) - at);
  }

  for (int64_t first = 0; first < computed; first += kLanes)
    compute_frames(signal.data(), first, static_cast<int>(std::min<int64_t>(kLanes, computed - first)), out);
  if (computed < frames)
    for (int m = 0; m < config_.feature_size; ++m)
      std::fill(out + m * frames + computed, out + (m + 1) * frames, -10.0f);
  const size_t size = size_t(config_.feature_size) * frames;
  clamp_and_scale(out, size, largest_of(out, size) - 8.0f);
}

}  // namespace mso
