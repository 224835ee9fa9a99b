#include "io/mel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "media_fixture.h"

namespace mso {
namespace {

// The same as in make_media_fixtures.py.
std::vector<float> signal(int kind, int64_t samples) {
  std::vector<float> x(samples);
  uint64_t state = 1;
  for (int64_t i = 0; i < samples; ++i) {
    state = (state * 1103515245 + 12345) % 2147483648u;
    const float noise = static_cast<float>(static_cast<double>(state) / 2147483648.0 - 0.5);
    x[i] =
        kind == 0 ? noise : 0.75f * static_cast<float>(static_cast<double>(i % 40) / 20 - 1) + 0.125f * noise;
  }
  return x;
}

TEST(Mel, EqualsTransformers) {
  const std::string file = media_fixture("mel.bin");
  constexpr int kStored = 24;
  size_t at = 0;
  int cases = 0;
  for (; at < file.size(); ++cases) {
    int32_t head[3];
    ASSERT_LE(at + sizeof head, file.size());
    std::memcpy(head, file.data() + at, sizeof head);
    at += sizeof head;
    MelConfig config;
    config.feature_size = head[0];
    const LogMel mel(config);
    std::vector<float> features(size_t(head[0]) * config.frames());
    mel.compute(signal(head[2], head[1]), features.data());
    double worst = 0;
    for (int m = 0; m < head[0]; ++m)
      for (int f = 0; f < kStored; ++f, at += sizeof(float)) {
        float want;
        std::memcpy(&want, file.data() + at, sizeof want);
        worst = std::max<double>(worst, std::abs(want - features[size_t(m) * config.frames() + f]));
      }
    EXPECT_LT(worst, 1e-4) << head[0] << " bins, " << head[1] << " samples, kind " << head[2];
  }
  EXPECT_EQ(cases, 5);
}

// The definition, in double: every window transformed by itself.
std::vector<double> slow_features(const MelConfig& c, const std::vector<float>& given) {
  const int64_t total = c.samples(), frames = c.frames(), half = c.n_fft / 2;
  const auto sample = [&](int64_t i) -> double {
    if (i < 0) i = -i;
    if (i >= total) i = 2 * (total - 1) - i;
    return i < static_cast<int64_t>(given.size()) ? given[i] : c.padding_value;
  };
  const auto to_hertz = [](double m) {
    return m >= 15 ? 1000 * std::exp(std::log(6.4) / 27 * (m - 15)) : 200 * m / 3;
  };
  const double top = 15 + std::log(8.0) * 27 / std::log(6.4);
  std::vector<double> out(c.feature_size * frames);
  double most = -1e300;
  for (int64_t f = 0; f < frames; ++f) {
    std::vector<double> power(half + 1);
    for (int64_t k = 0; k <= half; ++k) {
      std::complex<double> sum = 0;
      for (int64_t i = 0; i < c.n_fft; ++i) {
        const double window = 0.5 - 0.5 * std::cos(2 * M_PI * static_cast<double>(i) / c.n_fft);
        sum += sample(f * c.hop_length - half + i) * window *
               std::polar(1.0, -2 * M_PI * static_cast<double>(i * k % c.n_fft) / c.n_fft);
      }
      power[k] = std::norm(sum);
    }
    for (int m = 0; m < c.feature_size; ++m) {
      const double low = to_hertz(top * m / (c.feature_size + 1)),
                   mid = to_hertz(top * (m + 1) / (c.feature_size + 1)),
                   high = to_hertz(top * (m + 2) / (c.feature_size + 1));
      double sum = 0;
      for (int64_t k = 0; k <= half; ++k) {
        const double hertz = static_cast<double>(k) * (c.sampling_rate / 2) / static_cast<double>(half);
        sum += std::max(0.0, std::min((hertz - low) / (mid - low), (high - hertz) / (high - mid))) * 2 /
               (high - low) * power[k];
      }
      out[m * frames + f] = std::log10(std::max(sum, 1e-10));
      most = std::max(most, out[m * frames + f]);
    }
  }
  for (double& v : out) v = (std::max(v, most - 8) + 4) / 4;
  return out;
}

TEST(Mel, EqualsTheDefinitionForOtherSettings) {
  struct Case {
    int n_fft, hop, rate, bins, given;
    float padding;
  };
  for (const Case& t :
       {Case{400, 160, 1000, 20, 1000, 0}, Case{400, 160, 1000, 20, 930, 0}, Case{400, 160, 1000, 20, 100, 0},
        Case{60, 25, 900, 9, 500, 0.25f}, Case{128, 128, 1001, 12, 5000, 0}, Case{12, 5, 200, 3, 77, 0},
        Case{750, 100, 1600, 16, 1599, 0}}) {
    MelConfig c;
    c.n_fft = t.n_fft;
    c.hop_length = t.hop;
    c.sampling_rate = t.rate;
    c.feature_size = t.bins;
    c.chunk_length = 1;
    c.padding_value = t.padding;
    const auto x = signal(0, t.given);
    const auto want = slow_features(c, x);
    std::vector<float> got(want.size(), 99);
    LogMel(c).compute(x, got.data());
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LT(worst, 2e-5) << t.n_fft << "/" << t.hop << " at " << t.rate << ", " << t.given << " samples";
  }
}

TEST(Mel, SilenceAndEmptiness) {
  const LogMel mel((MelConfig()));
  const size_t size = size_t{80} * 3000;
  std::vector<float> nothing(size, 9), zeros(size, 9), cut(size), whole(size);
  mel.compute({}, nothing.data());
  mel.compute(std::vector<float>(480000), zeros.data());
  for (size_t i = 0; i < size; ++i) ASSERT_EQ(nothing[i], -1.5f);
  EXPECT_EQ(nothing, zeros);
  // What is behind 30 s makes no difference.
  const auto x = signal(0, 500000);
  mel.compute(x, cut.data());
  mel.compute(std::span(x).first(480000), whole.data());
  EXPECT_EQ(cut, whole);
}

// Each frame comes out the same wherever it stands among the lanes, so features do not depend on what is
// beside.
TEST(Mel, ShiftByAHopShiftsFrames) {
  const LogMel mel((MelConfig()));
  const auto x = signal(1, 40000);
  std::vector<float> a(size_t{80} * 3000), b(a.size());
  mel.compute(x, a.data());
  mel.compute(std::span(x).subspan(160 * 3), b.data());
  for (int m = 0; m < 80; ++m)
    for (int f = 5; f < 200; ++f) ASSERT_EQ(a[m * 3000 + f + 3], b[m * 3000 + f]);
}

TEST(Mel, RefusesWhatItCannotCompute) {
  const auto with = [](auto change) {
    MelConfig c;
    change(c);
    return c;
  };
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.n_fft = 401; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.n_fft = 2 * 7; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.n_fft = 0; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.hop_length = 0; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.feature_size = 0; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.chunk_length = 0; })), Error);
  EXPECT_THROW(LogMel(with([](MelConfig& c) { c.sampling_rate = -1; })), Error);
}

TEST(Mel, ThreadsShareIt) {
  const LogMel mel((MelConfig()));
  const auto x = signal(0, 20000);
  std::vector<float> want(size_t{80} * 3000);
  mel.compute(x, want.data());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      std::vector<float> got(want.size());
      mel.compute(x, got.data());
      EXPECT_EQ(got, want);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace mso
