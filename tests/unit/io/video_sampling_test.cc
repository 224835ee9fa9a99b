#include "io/video_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/video_table.h"

namespace mso {
namespace {

using Rule = VideoSampling::Rule;
using Indices = std::vector<int64_t>;

VideoSampling rule(Rule r, int64_t frames = 0) {
  VideoSampling s;
  s.rule = r;
  s.num_frames = frames;
  return s;
}

// Values from transformers 5.24 (Qwen2VLVideoProcessor.sample_frames, default_sample_indices_fn) and
// qwen-vl-utils (smart_nframes, torch.linspace(0, total − 1, n).round()).
TEST(VideoSampling, AsTheReferences) {
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl), 100, 25), (Indices{0, 12, 25, 37, 50, 62, 75, 87}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwenVlUtils), 100, 25), (Indices{0, 14, 28, 42, 57, 71, 85, 99}));
  EXPECT_EQ(sample_frames(rule(Rule::kUniform), 100, 25), (Indices{0, 12, 25, 37, 50, 62, 75, 87}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl), 9, 30), (Indices{0, 2, 4, 6}));  // at least 4
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl), 3, 30), (Indices{0, 1}));        // as many as there are, even
  EXPECT_EQ(sample_frames(rule(Rule::kUniform), 9, 30), (Indices{0}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl, 5), 10, 30), (Indices{0, 2, 5, 7}));  // round(2.5) = 2 pairs
  EXPECT_EQ(sample_frames(rule(Rule::kUniform, 5), 10, 30), (Indices{0, 2, 4, 6, 8}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwenVlUtils, 4), 10, 30), (Indices{0, 3, 6, 9}));
  EXPECT_EQ(sample_frames(rule(Rule::kMiddle, 8), 100, 25), (Indices{6, 18, 31, 43, 56, 68, 81, 93}));  // InternVLVideoProcessor
  EXPECT_EQ(sample_frames(rule(Rule::kMiddle, 3), 10, 30), (Indices{1, 5, 8}));
  VideoSampling three;  // min_frames 4 in whole patches of 3 frames: transformers rounds down, qwen-vl-utils up
  three.temporal_patch = 3;
  EXPECT_EQ(sample_frames(three, 12, 25).size(), 3u);
  three.rule = Rule::kQwenVlUtils;
  EXPECT_EQ(sample_frames(three, 12, 25).size(), 6u);
  EXPECT_EQ(sample_frames(rule(Rule::kAll), 3, 30), (Indices{0, 1, 2}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl), 100000, 25).size(), 768u);
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl), 767, 1).size(), 766u);
}

TEST(VideoSampling, ShortClipsAreTakenWhole) {
  for (const Rule r : {Rule::kQwen2Vl, Rule::kQwenVlUtils, Rule::kUniform, Rule::kAll}) {
    EXPECT_EQ(sample_frames(rule(r), 1, 25), (Indices{0}));
    EXPECT_EQ(sample_frames(rule(r, 8), 1, 25), (Indices{0}));
  }
  EXPECT_EQ(sample_frames(rule(Rule::kUniform, 8), 3, 25), (Indices{0, 1, 2}));
  EXPECT_EQ(sample_frames(rule(Rule::kQwen2Vl, 8), 5, 25), (Indices{0, 1, 2, 3}));
}

TEST(VideoSampling, HostileNumbers) {
  for (const Rule r : {Rule::kQwen2Vl, Rule::kQwenVlUtils, Rule::kUniform}) {
    for (const double rate : {1e-12, 1e-3, 1.0, 1e12})
      for (const int64_t total : {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{1000}}) {
        const Indices indices = sample_frames(rule(r), total, rate);
        ASSERT_FALSE(indices.empty());
        EXPECT_GE(indices.front(), 0);
        EXPECT_LT(indices.back(), total);
        EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
      }
    EXPECT_EQ(sample_frames(rule(r, 4), int64_t{1} << 60, 25).size(), 4u);
    EXPECT_LT(sample_frames(rule(r, 4), int64_t{1} << 60, 25).back(), int64_t{1} << 60);
    EXPECT_THROW(sample_frames(rule(r), 0, 25), Error);
    EXPECT_THROW(sample_frames(rule(r), 10, 0), Error);
    EXPECT_THROW(sample_frames(rule(r), 10, std::nan("")), Error);
  }
  VideoSampling s;
  s.min_frames = 10;
  s.max_frames = 4;
  EXPECT_THROW(sample_frames(s, 10, 25), Error);
  s = {};
  s.temporal_patch = 0;
  EXPECT_THROW(sample_frames(s, 10, 25), Error);
}

TEST(VideoSampling, EvenInTime) {
  // One frame a second for four seconds, then ten a second for one.
  std::vector<double> times = {0, 1, 2, 3};
  for (int i = 0; i < 10; ++i) times.push_back(4 + 0.1 * i);
  EXPECT_EQ(sample_times(rule(Rule::kUniform, 5), times, 5.0), (Indices{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample_times(rule(Rule::kQwenVlUtils, 2), times, 5.0), (Indices{0, 13}));
  EXPECT_EQ(sample_times(rule(Rule::kUniform, 10), times, 5.0), (Indices{0, 0, 1, 1, 2, 2, 3, 3, 4, 9}));
}

// I P B B P B B with a display order by pts; keyframes at packets 0 and 7.
std::vector<PacketFacts> two_groups() {
  std::vector<PacketFacts> packets;
  for (const int64_t base : {0, 7})
    for (const int64_t pts : {0, 3, 1, 2, 6, 4, 5})
      packets.push_back({base + pts, 1, pts == 0, false, false});
  return packets;
}

TEST(VideoTable, FramesFromPackets) {
  const FrameTable table = make_frame_table(two_groups());
  ASSERT_EQ(table.unreliable, "");
  ASSERT_EQ(table.pts.size(), 14u);
  EXPECT_EQ(table.pts[6], 6);
  EXPECT_EQ(table.packet[4], 5);
  EXPECT_EQ(table.end, 14);
  EXPECT_EQ(table.reorder, 1);
}

TEST(VideoTable, WhatPacketsCannotTell) {
  auto packets = two_groups();
  packets[3].pts = kNoTime;
  EXPECT_NE(make_frame_table(packets).unreliable, "");
  packets = two_groups();
  packets[3].pts = packets[2].pts;
  EXPECT_NE(make_frame_table(packets).unreliable, "");
  packets = two_groups();
  packets[0].key = false;
  EXPECT_NE(make_frame_table(packets).unreliable, "");
  packets = two_groups();
  packets[2].pts = -1;  // shown before the first keyframe
  EXPECT_NE(make_frame_table(packets).unreliable, "");
  for (auto& packet : packets = two_groups()) packet.discarded = true;
  EXPECT_NE(make_frame_table(packets).unreliable, "");
  EXPECT_NE(make_frame_table({}).unreliable, "");
  packets = two_groups();
  packets.back().duration = std::numeric_limits<int64_t>::max();
  EXPECT_NE(make_frame_table(packets).unreliable, "");
}

TEST(VideoTable, HiddenAndDiscardedPacketsHoldNoFrames) {
  auto packets = two_groups();
  packets[1].hidden = true;
  packets[2].discarded = true;
  const FrameTable table = make_frame_table(packets);
  EXPECT_EQ(table.pts.size(), 12u);
}

TEST(VideoTable, DecodesFromTheKeyframeNeeded) {
  const auto packets = two_groups();
  const FrameTable table = make_frame_table(packets);
  using Segments = std::vector<DecodeSegment>;
  EXPECT_EQ(plan_segments(packets, table, Indices{0}, true), (Segments{{0, 0}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{1}, true), (Segments{{0, 2}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{8}, true), (Segments{{7, 9}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{1, 8}, true), (Segments{{0, 2}, {7, 9}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{5, 7}, true), (Segments{{0, 7}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{1, 8}, false), (Segments{{0, 9}}));
  EXPECT_EQ(plan_segments(packets, table, Indices{6, 7}, true), (Segments{{0, 4}, {7, 7}}));

  // Open group: a frame decoded after the second keyframe, shown before it, needs the first.
  auto open = packets;
  open[8].pts = 6;
  open[4].pts = 100;  // out of the way
  const FrameTable open_table = make_frame_table(open);
  ASSERT_EQ(open_table.unreliable, "");
  EXPECT_EQ(plan_segments(open, open_table, Indices{5}, true).front().first, 0);
}

}  // namespace
}  // namespace mso
