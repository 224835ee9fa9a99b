// Rules of alignment. Values are compared with torch.nn.functional in tests/reference.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "io/sequence_alignment.h"

namespace mso {
namespace {

HostTensor ramp(int64_t rows, int64_t width = 1) {
  HostTensor t = HostTensor::make(DType::kF32, {rows, width});
  for (int64_t i = 0; i < rows * width; ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

std::vector<float> aligned(const HostTensor& in, const AlignmentRule& rule) {
  const HostTensor out = align_sequence(in, rule);
  EXPECT_EQ(out.shape[0], rule.length);
  return {out.data<float>(), out.data<float>() + out.bytes.size() / sizeof(float)};
}

TEST(SequenceAlignment, DefaultsDoWhatTheMissionSays) {
  const std::vector<float> video = aligned(ramp(32), default_alignment("video"));
  ASSERT_EQ(video.size(), 64u);
  EXPECT_FLOAT_EQ(video[0], 0);
  EXPECT_FLOAT_EQ(video[1], 0.25f);  // (1 + ½)/2 - ½
  EXPECT_FLOAT_EQ(video[2], 0.75f);
  EXPECT_FLOAT_EQ(video[63], 31);
  const std::vector<float> short_video = aligned(ramp(20), default_alignment("video"));
  EXPECT_FLOAT_EQ(short_video[39], 19);
  for (size_t i = 40; i < 64; ++i) EXPECT_EQ(short_video[i], 0);

  const std::vector<float> speech = aligned(ramp(47), default_alignment("audio"));
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(speech[i], i < 47 ? static_cast<float>(i) : 0) << i;

  const std::vector<float> signal = aligned(ramp(256), default_alignment("signal"));
  for (size_t i = 0; i < 64; ++i) EXPECT_FLOAT_EQ(signal[i], static_cast<float>(4 * i) + 1.5f) << i;
}

TEST(SequenceAlignment, RowsThatHoldFeatures) {
  const AlignmentRule video = default_alignment("video"), speech = default_alignment("audio"), signal = default_alignment("signal");
  for (int64_t rows : {0, 1, 2, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 1000}) {
    EXPECT_EQ(aligned_rows(rows, video), std::min<int64_t>(64, 2 * rows));
    EXPECT_EQ(aligned_rows(rows, speech), std::min<int64_t>(64, rows));
    const int64_t pooled = aligned_rows(rows, signal), size = (rows + 63) / 64;
    EXPECT_EQ(pooled, rows == 0 ? 0 : (rows + size - 1) / size);
    EXPECT_LE(pooled, 64);
    for (const AlignmentRule& rule : {video, speech, signal}) {
      AlignmentRule left = rule;
      left.side = AlignmentRule::Side::kLeft;
      left.value = -7;
      const std::vector<float> out = aligned(ramp(rows + 1, 2), left);
      const auto filled = static_cast<size_t>(aligned_rows(rows + 1, left));
      for (size_t i = 0; i < 2 * (64 - filled); ++i) EXPECT_EQ(out[i], -7);
      for (size_t i = 2 * (64 - filled); i < 128; ++i) EXPECT_GE(out[i], 0);
    }
  }
  EXPECT_EQ(aligned(ramp(0), speech), std::vector<float>(64, 0));
}

TEST(SequenceAlignment, LongerOnesAreCutOrFitted) {
  AlignmentRule rule{4, AlignmentRule::Method::kInterpolate, 0, 2, AlignmentRule::Longer::kTruncate};
  EXPECT_EQ(aligned(ramp(9), rule), (std::vector<float>{0, 1, 2, 3}));
  rule.longer = AlignmentRule::Longer::kFit;
  EXPECT_EQ(aligned(ramp(8), rule), (std::vector<float>{0.5f, 2.5f, 4.5f, 6.5f}));
  rule.method = AlignmentRule::Method::kAveragePool;
  EXPECT_EQ(aligned(ramp(9), rule), (std::vector<float>{1, 4, 7, 0}));  // three to one: three rows, then padding
}

TEST(SequenceAlignment, WrongRulesAreRefused) {
  EXPECT_THROW(default_alignment("smell"), Error);
  EXPECT_THROW(alignment_method("nearest", "k"), Error);
  EXPECT_EQ(alignment_method("average_pool", "k"), AlignmentRule::Method::kAveragePool);
  AlignmentRule rule = default_alignment("audio");
  EXPECT_NO_THROW(check_alignment(rule, "k"));
  for (auto spoil : {+[](AlignmentRule& r) { r.length = 0; }, +[](AlignmentRule& r) { r.length = -1; }, +[](AlignmentRule& r) { r.length = INT64_MAX; },
                     +[](AlignmentRule& r) { r.max_stretch = 0.5; }, +[](AlignmentRule& r) { r.max_stretch = std::numeric_limits<double>::quiet_NaN(); },
                     +[](AlignmentRule& r) { r.value = std::numeric_limits<float>::infinity(); }, +[](AlignmentRule& r) { r.longer = AlignmentRule::Longer::kFit; }}) {
    AlignmentRule bad = rule;
    spoil(bad);
    EXPECT_THROW(check_alignment(bad, "k"), Error);
  }
  HostTensor whole = HostTensor::make(DType::kI64, {3});
  EXPECT_THROW(align_sequence(whole, rule), Error);
}

}  // namespace
}  // namespace mso
