// Fourier transforms of kFftLanes signals side by side, for compilers to turn into vector instructions:
// complex, any length of factors 2, 3 and 5 (Stockham's self-sorting form).
#pragma once

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

namespace mso {

inline constexpr int kFftLanes = 16;

// Data: re[i * kFftLanes + lane], im likewise, i < length.
class LaneFft {
 public:
  struct Stage {
    int radix = 0;
    int groups = 0;               // m: twiddles p = 0 … m − 1
    int stride = 0;               // s: elements that share a twiddle
    std::vector<float> twiddles;  // [m][radix − 1][2]: w^(p j) for j = 1 … radix − 1
  };

  // False from valid(): the length has other factors.
  explicit LaneFft(int length) : length_(length) {
    int rest = length, stride = 1;
    for (const int radix : {5, 4, 3, 2})
      while (rest > 0 && rest % radix == 0) {
        Stage stage{radix, rest / radix, stride, {}};
        for (int p = 0; p < stage.groups; ++p)
          for (int j = 1; j < radix; ++j) {
            const double angle = -2 * std::numbers::pi * p * j / rest;
            stage.twiddles.push_back(static_cast<float>(std::cos(angle)));
            stage.twiddles.push_back(static_cast<float>(std::sin(angle)));
          }
        stages_.push_back(std::move(stage));
        rest /= radix;
        stride *= radix;
      }
    valid_ = rest == 1;
  }

  bool valid() const { return valid_; }
  int length() const { return length_; }
  const std::vector<Stage>& stages() const { return stages_; }

 private:
  int length_;
  bool valid_ = false;
  std::vector<Stage> stages_;
};

// One stage: n · kFftLanes numbers from (re, im) to (to_re, to_im). Always inlined, so that it is compiled
// for the instruction set of its caller (MSO_SIMD_CLONES).
template <int R>
[[gnu::always_inline]] inline void fft_stage(const LaneFft::Stage& stage, const float* __restrict re,
                                             const float* __restrict im, float* __restrict to_re,
                                             float* __restrict to_im) {
  const int m = stage.groups;
  const int run = stage.stride * kFftLanes;  // consecutive numbers with the same twiddle
  for (int p = 0; p < m; ++p) {
    float wr[R], wi[R];
    for (int j = 1; j < R; ++j) {
      wr[j] = stage.twiddles[(size_t(p) * (R - 1) + j - 1) * 2];
      wi[j] = stage.twiddles[(size_t(p) * (R - 1) + j - 1) * 2 + 1];
    }
    const float* __restrict xr = re + size_t(p) * run;
    const float* __restrict xi = im + size_t(p) * run;
    float* __restrict yr = to_re + size_t(p) * R * run;
    float* __restrict yi = to_im + size_t(p) * R * run;
    const size_t apart = size_t(m) * run;
    for (int q = 0; q < run; ++q) {
      float br[R], bi[R];
      if constexpr (R == 2) {
        const float ar = xr[q], ai = xi[q], cr = xr[q + apart], ci = xi[q + apart];
        br[0] = ar + cr, bi[0] = ai + ci;
        br[1] = ar - cr, bi[1] = ai - ci;
      } else if constexpr (R == 3) {
        constexpr float h = 0.86602540378443864676f;
        const float ar = xr[q], ai = xi[q];
        const float cr = xr[q + apart], ci = xi[q + apart], dr = xr[q + 2 * apart], di = xi[q + 2 * apart];
        const float sr = cr + dr, si = ci + di, er = h * (cr - dr), ei = h * (ci - di);
        const float tr = ar - 0.5f * sr, ti = ai - 0.5f * si;
        br[0] = ar + sr, bi[0] = ai + si;
        br[1] = tr + ei, bi[1] = ti - er;
        br[2] = tr - ei, bi[2] = ti + er;
      } else if constexpr (R == 4) {
        const float ar = xr[q], ai = xi[q], cr = xr[q + apart], ci = xi[q + apart];
        const float dr = xr[q + 2 * apart], di = xi[q + 2 * apart], er = xr[q + 3 * apart],
                    ei = xi[q + 3 * apart];
        const float s0r = ar + dr, s0i = ai + di, s1r = ar - dr, s1i = ai - di;
        const float s2r = cr + er, s2i = ci + ei, s3r = cr - er, s3i = ci - ei;
        br[0] = s0r + s2r, bi[0] = s0i + s2i;
        br[1] = s1r + s3i, bi[1] = s1i - s3r;
        br[2] = s0r - s2r, bi[2] = s0i - s2i;
        br[3] = s1r - s3i, bi[3] = s1i + s3r;
      } else {
        static_assert(R == 5);
        constexpr float c1 = 0.30901699437494742410f, c2 = -0.80901699437494742410f;
        constexpr float s1 = 0.95105651629515357212f, s2 = 0.58778525229247312917f;
        const float ar = xr[q], ai = xi[q];
        const float pr = xr[q + apart] + xr[q + 4 * apart], pi = xi[q + apart] + xi[q + 4 * apart];
        const float mr = xr[q + apart] - xr[q + 4 * apart], mi = xi[q + apart] - xi[q + 4 * apart];
        const float ur = xr[q + 2 * apart] + xr[q + 3 * apart], ui = xi[q + 2 * apart] + xi[q + 3 * apart];
        const float vr = xr[q + 2 * apart] - xr[q + 3 * apart], vi = xi[q + 2 * apart] - xi[q + 3 * apart];
        const float t1r = ar + c1 * pr + c2 * ur, t1i = ai + c1 * pi + c2 * ui;
        const float t2r = ar + c2 * pr + c1 * ur, t2i = ai + c2 * pi + c1 * ui;
        const float k1r = s1 * mr + s2 * vr, k1i = s1 * mi + s2 * vi;
        const float k2r = s2 * mr - s1 * vr, k2i = s2 * mi - s1 * vi;
        br[0] = ar + pr + ur, bi[0] = ai + pi + ui;
        br[1] = t1r + k1i, bi[1] = t1i - k1r;
        br[2] = t2r + k2i, bi[2] = t2i - k2r;
        br[3] = t2r - k2i, bi[3] = t2i + k2r;
        br[4] = t1r - k1i, bi[4] = t1i + k1r;
      }
      yr[q] = br[0];
      yi[q] = bi[0];
      for (int j = 1; j < R; ++j) {
        yr[size_t(j) * run + q] = br[j] * wr[j] - bi[j] * wi[j];
        yi[size_t(j) * run + q] = br[j] * wi[j] + bi[j] * wr[j];
      }
    }
  }
}

// (re, im) to their transform; `work_re`/`work_im` are as large. True: the result is in the work buffers.
[[gnu::always_inline]] inline bool run_fft(const LaneFft& fft, float* re, float* im, float* work_re,
                                           float* work_im) {
  bool swapped = false;
  for (const LaneFft::Stage& stage : fft.stages()) {
    const float* from_re = swapped ? work_re : re;
    const float* from_im = swapped ? work_im : im;
    float* to_re = swapped ? re : work_re;
    float* to_im = swapped ? im : work_im;
    switch (stage.radix) {
      case 2:
        fft_stage<2>(stage, from_re, from_im, to_re, to_im);
        break;
      case 3:
        fft_stage<3>(stage, from_re, from_im, to_re, to_im);
        break;
      case 4:
        fft_stage<4>(stage, from_re, from_im, to_re, to_im);
        break;
      default:
        fft_stage<5>(stage, from_re, from_im, to_re, to_im);
    }
    swapped = !swapped;
  }
  return swapped;
}

}  // namespace mso
