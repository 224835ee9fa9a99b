#include "io/video.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "media_fixture.h"

namespace mso {
namespace {

VideoOptions sampled(VideoSampling::Rule rule, int64_t frames = 0) {
  VideoOptions options;
  options.sampling.rule = rule;
  options.sampling.num_frames = frames;
  return options;
}
VideoOptions all_frames() {
  return sampled(VideoSampling::Rule::kAll);
}

VideoClip decode(const std::string& name, const VideoOptions& options) {
  const std::string file = media_fixture(name);
  return decode_video(bytes_of(file), name, options);
}

std::string message_of(const std::string& file, const VideoOptions& options) {
  try {
    decode_video(bytes_of(file), "clip", options);
  } catch (const DecodeStopped& stopped) {
    EXPECT_EQ(stopped.exit_code(), ExitCode::kFailure);
    return stopped.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData) << error.what();
    EXPECT_NE(std::string(error.what()).find("clip"), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

struct Counted {
  const char* name;
  int64_t frames;
  int64_t first;  // number that the first frame shows
  double rate;
  bool exact = true;  // numbers can be read: the clip is not coded too coarsely
};

class CountedClip : public testing::TestWithParam<Counted> {};

TEST_P(CountedClip, EveryFrameInOrder) {
  const Counted& want = GetParam();
  const VideoClip clip = decode(want.name, all_frames());
  EXPECT_EQ(clip.width, 64);
  EXPECT_EQ(clip.height, 48);
  ASSERT_EQ(clip.total_frames, want.frames);
  ASSERT_EQ(clip.frames(), want.frames);
  EXPECT_NEAR(clip.frames_per_second, want.rate, 0.002 * want.rate);
  for (int64_t i = 0; i < want.frames; ++i) {
    EXPECT_EQ(clip.frame_indices[i], i);
    if (want.exact) {
      EXPECT_EQ(shown_number(clip, i), want.first + i);
    }
    EXPECT_NEAR(clip.timestamps_s[i], static_cast<double>(i) / want.rate, 0.002);
  }
}

// Chosen frames are the same whether all are decoded or only what they need.
TEST_P(CountedClip, ChosenFramesAreThoseOfTheWhole) {
  const Counted& want = GetParam();
  const VideoClip whole = decode(want.name, all_frames());
  for (const auto rule :
       {VideoSampling::Rule::kQwen2Vl, VideoSampling::Rule::kQwenVlUtils, VideoSampling::Rule::kUniform})
    for (const int64_t count : {0, 1, 2, 5, 11})
      for (const int threads : {1, 3}) {
        VideoOptions options = sampled(rule, count);
        options.threads = threads;
        const VideoClip clip = decode(want.name, options);
        ASSERT_EQ(clip.total_frames, whole.total_frames);
        for (int64_t i = 0; i < clip.frames(); ++i) {
          const int64_t index = clip.frame_indices[i];
          EXPECT_EQ(clip.timestamps_s[i], whole.timestamps_s[index]);
          EXPECT_TRUE(std::ranges::equal(clip.frame(i), whole.frame(index))) << "frame " << index;
        }
      }
}

TEST_P(CountedClip, IsProbed) {
  const Counted& want = GetParam();
  const std::string file = media_fixture(want.name);
  const VideoInfo info = probe_video(bytes_of(file), want.name);
  EXPECT_EQ(info.total_frames, want.frames);
  EXPECT_EQ(info.width, 64);
  EXPECT_EQ(info.height, 48);
  EXPECT_NEAR(info.frames_per_second, want.rate, 0.002 * want.rate);
  EXPECT_NEAR(info.duration_s, static_cast<double>(want.frames) / want.rate, 0.01);
  EXPECT_EQ(info.constant_rate, want.rate == 25);
  EXPECT_FALSE(info.has_audio);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, CountedClip,
    testing::Values(Counted{"h264.mp4", 60, 0, 25}, Counted{"open_gop.mkv", 60, 0, 25},
                    Counted{"open_gop.ts", 60, 0, 25}, Counted{"refresh.ts", 40, 0, 25},
                    Counted{"hevc.mp4", 40, 0, 25}, Counted{"vp8.webm", 40, 0, 25, false},
                    Counted{"vp9.webm", 40, 0, 25, false}, Counted{"no_times.avi", 30, 0, 25},
                    Counted{"wrong_count.avi", 30, 0, 25}, Counted{"raw.h264", 30, 0, 25},
                    Counted{"picture.gif", 12, 0, 25}, Counted{"mpeg2.ts", 30, 0, 25}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

// -ss 0.5 -c copy: the packets before are there, an edit list hides them.
TEST(Video, EditListHidesFrames) {
  const VideoClip clip = decode("edit_list.mp4", all_frames());
  ASSERT_GT(clip.frames(), 40);
  ASSERT_LT(clip.frames(), 60);
  for (int64_t i = 0; i < clip.frames(); ++i) EXPECT_EQ(shown_number(clip, i), 60 - clip.frames() + i);
  EXPECT_EQ(clip.timestamps_s[0], 0);
}

// 12 frames 20 ms apart, then 12 frames 200 ms apart.
TEST(Video, VariableRate) {
  const VideoClip clip = decode("vfr.mkv", all_frames());
  ASSERT_EQ(clip.frames(), 24);
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_EQ(shown_number(clip, i), i);
    EXPECT_NEAR(clip.timestamps_s[i], i < 12 ? 0.02 * i : 0.24 + 0.2 * (i - 12), 0.0015);
  }
  EXPECT_NEAR(clip.frames_per_second, 24 / 2.5, 1);
  const std::string file = media_fixture("vfr.mkv");
  EXPECT_FALSE(probe_video(bytes_of(file), "vfr").constant_rate);

  // By number half of the frames are of the first quarter second; by time two of eight.
  VideoOptions options = sampled(VideoSampling::Rule::kQwen2Vl, 8);
  EXPECT_EQ(decode_video(bytes_of(file), "vfr", options).frame_indices,
            (std::vector<int64_t>{0, 3, 6, 9, 12, 15, 18, 21}));
  options.even_in_time = true;
  const VideoClip even = decode_video(bytes_of(file), "vfr", options);
  ASSERT_EQ(even.frames(), 8);
  EXPECT_LE(even.frame_indices[1], 12);
  EXPECT_GE(even.frame_indices[2], 13);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(shown_number(even, i), even.frame_indices[i]);
}

TEST(Video, OneFrame) {
  for (const auto rule : {VideoSampling::Rule::kQwen2Vl, VideoSampling::Rule::kQwenVlUtils,
                          VideoSampling::Rule::kUniform, VideoSampling::Rule::kAll}) {
    const VideoClip clip = decode("one_frame.mp4", sampled(rule));
    ASSERT_EQ(clip.frames(), 1);
    EXPECT_EQ(clip.total_frames, 1);
    EXPECT_NEAR(clip.frames_per_second, 25, 0.1);
  }
}

TEST(Video, RotatedAndMirrored) {
  const VideoClip stored = decode("one_frame.mp4", all_frames());
  const auto pixel = [](const VideoClip& clip, int x, int y) {
    return clip.rgb[(size_t(y) * clip.width + x) * 3];
  };
  struct Case {
    const char* name;
    bool swapped;
  };
  for (const auto& [name, swapped] : {Case{"rot90.mp4", true}, Case{"rot180.mp4", false},
                                      Case{"rot270.mp4", true}, Case{"mirror.mp4", false}}) {
    const VideoClip clip = decode(name, all_frames());
    ASSERT_EQ(clip.width, swapped ? 48 : 64) << name;
    ASSERT_EQ(clip.height, swapped ? 64 : 48) << name;
    const std::string file = media_fixture(name);
    const VideoInfo info = probe_video(bytes_of(file), name);
    EXPECT_EQ(info.width, clip.width);
    EXPECT_EQ(info.height, clip.height);
    for (int y = 0; y < stored.height; ++y)
      for (int x = 0; x < stored.width; ++x) {
        // Clockwise by 90°: the left column becomes the top row.
        const std::string which = name;
        const auto got = which == "rot90.mp4"    ? pixel(clip, stored.height - 1 - y, x)
                         : which == "rot180.mp4" ? pixel(clip, stored.width - 1 - x, stored.height - 1 - y)
                         : which == "rot270.mp4" ? pixel(clip, y, stored.width - 1 - x)
                                                 : pixel(clip, stored.width - 1 - x, y);
        ASSERT_EQ(got, pixel(stored, x, y)) << name << " " << x << "," << y;
      }
  }
}

TEST(Video, ColoursFollowMatrixAndRange) {
  struct Case {
    const char* name;
    int r, g, b;
  };
  for (const auto& [name, r, g, b] :
       {Case{"red_601.mp4", 255, 0, 0}, Case{"red_709.mp4", 255, 0, 0}, Case{"blue_full.mp4", 0, 0, 255}}) {
    const VideoClip clip = decode(name, all_frames());
    const auto frame = clip.frame(0);
    EXPECT_NEAR(frame[0], r, 4) << name;
    EXPECT_NEAR(frame[1], g, 4) << name;
    EXPECT_NEAR(frame[2], b, 4) << name;
  }
}

TEST(Video, DamageIsAnErrorUnlessTolerated) {
  const std::string file = media_fixture("damaged.mp4");
  EXPECT_NE(message_of(file, all_frames()).find("damaged"), std::string::npos);
  VideoOptions options = all_frames();
  options.tolerate_damage = true;
  const VideoClip clip = decode_video(bytes_of(file), "clip", options);
  EXPECT_GE(clip.frames(), 30);
  EXPECT_LE(clip.frames(), 60);
  // Those before the damage are whole.
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(shown_number(clip, i), i);
  // Frames that need nothing of the damaged part can be had.
  options = sampled(VideoSampling::Rule::kUniform, 1);
  EXPECT_EQ(shown_number(decode_video(bytes_of(file), "clip", options), 0), 0);
}

TEST(Video, TruncatedFiles) {
  for (const char* name :
       {"h264.mp4", "open_gop.mkv", "vp9.webm", "hevc.mp4", "open_gop.ts", "no_times.avi", "picture.gif"}) {
    const std::string whole = media_fixture(name);
    for (const double part : {0.0, 0.02, 0.3, 0.6, 0.9, 0.98}) {
      const std::string file = whole.substr(0, static_cast<size_t>(part * static_cast<double>(whole.size())));
      VideoOptions options = all_frames();
      const std::string message = message_of(file, options);  // an Error, or the frames there are
      if (std::string(name).ends_with("mp4")) {
        EXPECT_NE(message, "") << name << " " << part;
      }
      options.tolerate_damage = true;
      try {
        const VideoClip clip = decode_video(bytes_of(file), "clip", options);
        for (int64_t i = 0; i + 2 < clip.frames(); ++i)
          if (shown_number(clip, i) >= 0 && std::string(name) == "open_gop.mkv") {
            EXPECT_EQ(shown_number(clip, i), i);
          }
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
      }
    }
  }
}

TEST(Video, FilesWithoutVideo) {
  EXPECT_NE(message_of("", {}).find("empty"), std::string::npos);
  EXPECT_NE(message_of(std::string(4096, 'x'), {}), "");
  EXPECT_NE(message_of(media_fixture("speech.ogg"), {}).find("no video stream"), std::string::npos);
  EXPECT_NE(message_of(media_fixture("speech.ogg"), {}).find("audio vorbis"), std::string::npos);
  const std::string cover = message_of(media_fixture("cover.mp3"), {});
  EXPECT_NE(cover.find("cover picture"), std::string::npos) << cover;
}

// Nothing but the given bytes is read.
TEST(Video, FilesThatNameOthersAreRefused) {
  const std::string path = "/tmp/x.mp4";
  for (const std::string& text :
       {"ffconcat version 1.0\nfile '" + path + "'\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile://" + path + "\n",
        std::string("v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n")})
    EXPECT_NE(message_of(text, {}), "") << text;
}

TEST(Video, LimitsAreKept) {
  const std::string file = media_fixture("h264.mp4");
  VideoOptions options = all_frames();
  options.limits.max_pixels = 64 * 48 - 1;
  EXPECT_NE(message_of(file, options).find("too large"), std::string::npos);
  options = all_frames();
  options.limits.max_packets = 59;
  EXPECT_NE(message_of(file, options).find("packets"), std::string::npos);
  options = all_frames();
  options.limits.max_output_bytes = 60 * 64 * 48 * 3 - 1;
  EXPECT_NE(message_of(file, options).find("limit of memory"), std::string::npos);

  // A header of 2³² samples of 1 byte would make an index of 100 GB.
  std::string hostile = file;
  const size_t stsz = hostile.find("stsz");
  ASSERT_NE(stsz, std::string::npos);
  std::memcpy(hostile.data() + stsz + 8, "\0\0\0\1\xff\xff\xff\xf0", 8);
  EXPECT_NE(message_of(hostile, all_frames()).find("samples of 1 bytes"), std::string::npos);
}

TEST(Video, CanBeStoppedAndTellsItsPlace) {
  const std::string file = media_fixture("h264.mp4");
  std::atomic<bool> cancelled{true};
  DecodePlace place;
  VideoOptions options = all_frames();
  options.control.cancelled = &cancelled;
  options.control.place = &place;
  EXPECT_NE(message_of(file, options).find("cancelled"), std::string::npos);
  cancelled = false;
  decode_video(bytes_of(file), "clip", options);
  EXPECT_EQ(place.frames, 60);
  EXPECT_EQ(place.frames_total, 60);
  EXPECT_GT(place.packets_total, 50);
  EXPECT_LE(place.packets, place.packets_total);

  // In the middle: stopped by what is told of the first frame.
  VideoOptions stopping = options;
  const auto stop = [&](int64_t frame, std::span<const uint8_t>, const VideoClip&) {
    if (frame == 10) cancelled = true;
  };
  EXPECT_THROW(decode_video(bytes_of(file), "clip", stopping, stop), DecodeStopped);
  EXPECT_LT(place.frames, 40);

  options.control = {};
  options.control.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  try {
    decode_video(bytes_of(file), "clip", options);
    FAIL();
  } catch (const DecodeStopped& stopped) {
    EXPECT_TRUE(stopped.by_deadline());
  }
}

TEST(Video, FrameByFrameIsTheSame) {
  for (const char* name : {"h264.mp4", "no_times.avi"}) {
    const VideoClip whole = decode(name, all_frames());
    const std::string file = media_fixture(name);
    VideoClip joined;
    joined.rgb.resize(whole.rgb.size());
    std::vector<bool> seen(whole.frames());
    const VideoClip head =
        decode_video(bytes_of(file), name, all_frames(),
                     [&](int64_t frame, std::span<const uint8_t> rgb, const VideoClip& clip) {
                       EXPECT_EQ(clip.frames(), whole.frames());
                       seen[frame] = true;
                       std::copy(rgb.begin(), rgb.end(), joined.rgb.begin() + rgb.size() * frame);
                     });
    EXPECT_TRUE(head.rgb.empty());
    EXPECT_EQ(head.frame_indices, whole.frame_indices);
    EXPECT_EQ(joined.rgb, whole.rgb);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), whole.frames());
  }
}

TEST(Video, TwoThreadsAtOnce) {
  const VideoClip want = decode("h264.mp4", all_frames());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(decode("h264.mp4", all_frames()).rgb, want.rgb);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace mso
