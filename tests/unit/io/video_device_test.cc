// Which clips a GPU decodes, and that what it gives, or fails at, comes out as from the CPU. A device of the test's own
// stands for the GPU: it decodes on the CPU and hands frames over in the GPU's layout, or fails when it is told to.
#include "io/video_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/video.h"
#include "media_fixture.h"

namespace mso {
namespace {

TEST(VideoDevicePolicy, CodecsAndSizesThatNvdecTakes) {
  const struct {
    const char* codec;
    int width, height;
    bool taken;
  } cases[] = {
      {"h264", 48, 16, true},      {"h264", 47, 16, false},      {"h264", 48, 15, false},       {"h264", 4096, 4096, true},
      {"h264", 4097, 2160, false}, {"h264", 2160, 4097, false},  {"hevc", 144, 144, true},      {"hevc", 143, 144, false},
      {"hevc", 8192, 8192, true},  {"hevc", 8193, 8192, false},  {"vp8", 48, 16, true},         {"vp8", 4096, 4097, false},
      {"vp9", 128, 128, true},     {"vp9", 127, 128, false},     {"vp9", 8192, 8192, true},     {"av1", 128, 128, true},
      {"av1", 128, 127, false},    {"mpeg4", 640, 480, false},   {"mpeg2video", 640, 480, false}, {"mpeg1video", 640, 480, false},
      {"prores", 640, 480, false}, {"", 640, 480, false},        {"h264", 0, 0, false},         {"h264", -1, 480, false},
  };
  for (const auto& c : cases) EXPECT_EQ(nvdec_takes({c.codec, c.width, c.height, 1}), c.taken) << c.codec << " " << c.width << "x" << c.height;
}

TEST(VideoDevicePolicy, EveryCombination) {
  const int sides[][2] = {{64, 48}, {320, 240}, {639, 360}, {640, 360}, {1280, 720}, {1920, 1080}, {3840, 2160}, {8192, 4320}};
  for (const VideoBackend backend : {VideoBackend::kAuto, VideoBackend::kCpu, VideoBackend::kNvdec})
    for (const bool present : {false, true})
      for (const char* codec : {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mpeg2video", "theora"})
        for (const auto& [width, height] : sides)
          for (const int64_t frames : {-1, 0, 1, 2, 8, 30, 32, 33, 72, 73, 290, 292, 1000000}) {
            const DecodeWork work{codec, width, height, frames};
            bool expected = present && backend != VideoBackend::kCpu && frames > 0 && nvdec_takes(work);
            if (backend == VideoBackend::kAuto)
              expected = expected && int64_t{width} * height >= 230400 && int64_t{width} * height * frames >= 67108864;
            EXPECT_EQ(decodes_on_device(backend, work, present), expected)
                << static_cast<int>(backend) << present << codec << width << "x" << height << " " << frames;
          }
  // As the figures say: 73 frames of 720p, 33 of 1080p.
  EXPECT_FALSE(decodes_on_device(VideoBackend::kAuto, {"h264", 1280, 720, 72}, true));
  EXPECT_TRUE(decodes_on_device(VideoBackend::kAuto, {"h264", 1280, 720, 73}, true));
  EXPECT_FALSE(decodes_on_device(VideoBackend::kAuto, {"hevc", 1920, 1080, 32}, true));
  EXPECT_TRUE(decodes_on_device(VideoBackend::kAuto, {"hevc", 1920, 1080, 33}, true));
  EXPECT_TRUE(decodes_on_device(VideoBackend::kAuto, {"h264", 1920, 1080, INT64_MAX}, true));
}

TEST(VideoDevicePolicy, Words) {
  EXPECT_EQ(video_backend("auto"), VideoBackend::kAuto);
  EXPECT_EQ(video_backend("cpu"), VideoBackend::kCpu);
  EXPECT_EQ(video_backend("nvdec"), VideoBackend::kNvdec);
  for (const char* word : {"", "gpu", "NVDEC", "cuda"}) EXPECT_THROW(video_backend(word), Error) << word;
}

TEST(VideoDeviceTest, WithoutAGpuNvdecIsRefusedAndAutoTakesTheCpu) {
  std::string why;
  if (find_video_device(&why)) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(open_video_device(VideoBackend::kAuto), nullptr);
  EXPECT_EQ(open_video_device(VideoBackend::kCpu), nullptr);
  try {
    open_video_device(VideoBackend::kNvdec);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    for (const char* part : {"no GPU to decode video on", "FFmpeg finds no CUDA device", "data.video_decoder: nvdec", "auto takes the CPU"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// What a GPU's decoder gives of a frame.
void make_nv12(AVFrame* frame) {
  ASSERT_TRUE(frame->format == AV_PIX_FMT_YUV420P || frame->format == AV_PIX_FMT_YUVJ420P);  // the same, of full range
  AvFramePtr nv12(av_frame_alloc());
  nv12->format = AV_PIX_FMT_NV12;
  nv12->width = frame->width;
  nv12->height = frame->height;
  ASSERT_GE(av_frame_get_buffer(nv12.get(), 0), 0);
  ASSERT_GE(av_frame_copy_props(nv12.get(), frame), 0);
  for (int y = 0; y < frame->height; ++y)
    std::memcpy(nv12->data[0] + nv12->linesize[0] * y, frame->data[0] + frame->linesize[0] * y, frame->width);
  for (int y = 0; y < (frame->height + 1) / 2; ++y)
    for (int x = 0; x < (frame->width + 1) / 2; ++x)
      for (int plane : {1, 2}) nv12->data[1][nv12->linesize[1] * y + 2 * x + plane - 1] = frame->data[plane][frame->linesize[plane] * y + x];
  av_frame_unref(frame);
  av_frame_move_ref(frame, nv12.get());
}

class StandInDevice : public VideoDevice {
 public:
  explicit StandInDevice(VideoBackend with = VideoBackend::kNvdec) { backend = with; }
  void attach(AVCodecContext*) const override { ++attached; }
  bool fetch(AVFrame* frame) const override {
    if (fails_at >= 0 && fetched++ >= fails_at) return false;
    make_nv12(frame);
    return make_planar(frame);
  }
  mutable int attached = 0, fetched = 0;
  int fails_at = -1;  // frame; negative: never
};

VideoClip decode(const std::string& name, std::shared_ptr<VideoDevice> device, int64_t frames = 0, bool tolerate = false) {
  const std::string file = media_fixture(name);
  VideoOptions options;
  options.sampling.rule = frames > 0 ? VideoSampling::Rule::kUniform : VideoSampling::Rule::kAll;
  options.sampling.num_frames = frames;
  options.tolerate_damage = tolerate;
  options.device = std::move(device);
  return decode_video(bytes_of(file), name, options);
}

void expect_same(const VideoClip& a, const VideoClip& b) {
  EXPECT_EQ(a.frame_indices, b.frame_indices);
  EXPECT_EQ(a.timestamps_s, b.timestamps_s);
  EXPECT_TRUE(a.width == b.width && a.height == b.height && a.rgb == b.rgb);
}

constexpr const char* kClips[] = {"h264.mp4",   "edit_list.mp4", "one_frame.mp4", "rot90.mp4", "mirror.mp4",  "vfr.mkv",  "open_gop.mkv",
                                  "open_gop.ts", "refresh.ts",    "red_601.mp4",   "red_709.mp4", "blue_full.mp4", "vp8.webm"};

TEST(VideoDeviceTest, FramesInTheDevicesLayoutAreTheSamePixels) {
  for (const char* name : kClips) {
    SCOPED_TRACE(name);
    const auto device = std::make_shared<StandInDevice>();
    expect_same(decode(name, device), decode(name, nullptr));
    expect_same(decode(name, device, 5), decode(name, nullptr, 5));
    EXPECT_GE(device->attached, 2);
    EXPECT_GE(device->clips(), 2);
    EXPECT_EQ(device->failures(), 0);
  }
}

TEST(VideoDeviceTest, SmallClipsAndOtherCodecsStayOnTheCpu) {
  const auto device = std::make_shared<StandInDevice>();
  for (const char* name : {"hevc.mp4", "mpeg2.ts", "no_times.avi", "vp9.webm"}) expect_same(decode(name, device), decode(name, nullptr));
  EXPECT_EQ(device->attached, 0);
  const auto automatic = std::make_shared<StandInDevice>(VideoBackend::kAuto);
  expect_same(decode("h264.mp4", automatic), decode("h264.mp4", nullptr));
  EXPECT_EQ(automatic->attached, 0);
  EXPECT_EQ(automatic->clips(), 0);
}

TEST(VideoDeviceTest, AFailureAnywhereFallsBackToTheCpu) {
  for (const char* name : {"h264.mp4", "vfr.mkv", "refresh.ts"})
    for (const int frame : {0, 1, 7, 23}) {
      SCOPED_TRACE(name);
      const auto device = std::make_shared<StandInDevice>();
      device->fails_at = frame;
      expect_same(decode(name, device), decode(name, nullptr));
      EXPECT_EQ(device->failures(), 1);
    }
}

TEST(VideoDeviceTest, IsLeftAloneAfterManyFailures) {
  const auto device = std::make_shared<StandInDevice>();
  device->fails_at = 0;
  for (int i = 0; i < 2 * VideoDevice::kMostFailures; ++i) expect_same(decode("one_frame.mp4", device), decode("one_frame.mp4", nullptr));
  EXPECT_FALSE(device->usable());
  EXPECT_EQ(device->failures(), VideoDevice::kMostFailures);
  EXPECT_EQ(device->attached, VideoDevice::kMostFailures);
}

// Whether a clip is damaged is said by the CPU, in the same words.
TEST(VideoDeviceTest, DamageIsNotTheDevices) {
  auto message = [](std::shared_ptr<VideoDevice> device) {
    try {
      decode("damaged.mp4", std::move(device));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto device = std::make_shared<StandInDevice>();
  EXPECT_NE(message(nullptr), "");
  EXPECT_EQ(message(device), message(nullptr));
  expect_same(decode("damaged.mp4", device, 0, true), decode("damaged.mp4", nullptr, 0, true));
  EXPECT_GE(device->attached, 2);
  EXPECT_EQ(device->failures(), 0);
}

TEST(VideoDeviceTest, StoppingIsNoFailure) {
  const std::string file = media_fixture("h264.mp4");
  const auto device = std::make_shared<StandInDevice>();
  std::atomic<bool> cancelled = true;
  VideoOptions options;
  options.device = device;
  options.control.cancelled = &cancelled;
  EXPECT_THROW(decode_video(bytes_of(file), "clip", options), DecodeStopped);
  EXPECT_EQ(device->failures(), 0);
}

TEST(VideoDeviceTest, PlanarFramesKeepEverySample) {
  for (const AVPixelFormat format : {AV_PIX_FMT_NV12, AV_PIX_FMT_P010LE})
    for (const auto& [width, height] : {std::pair(64, 48), {63, 47}, {1, 1}, {17, 2}}) {
      const bool deep = format == AV_PIX_FMT_P010LE;
      AvFramePtr frame(av_frame_alloc());
      frame->format = format;
      frame->width = width;
      frame->height = height;
      frame->pts = 77;
      frame->color_range = AVCOL_RANGE_JPEG;
      ASSERT_GE(av_frame_get_buffer(frame.get(), 0), 0);
      // Sample i of plane p is a number of its own.
      auto value = [&](int plane, int x, int y) { return (plane * 331 + y * 67 + x * 5 + 1) & (deep ? 1023 : 255); };
      auto put = [&](int plane, int at, int y, int v) {
        uint8_t* row = frame->data[plane] + frame->linesize[plane] * y;
        if (deep)
          reinterpret_cast<uint16_t*>(row)[at] = static_cast<uint16_t>(v << 6);
        else
          row[at] = static_cast<uint8_t>(v);
      };
      for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x) put(0, x, y, value(0, x, y));
      for (int y = 0; y < (height + 1) / 2; ++y)
        for (int x = 0; x < (width + 1) / 2; ++x)
          for (int plane : {1, 2}) put(1, 2 * x + plane - 1, y, value(plane, x, y));
      ASSERT_TRUE(make_planar(frame.get()));
      EXPECT_EQ(frame->format, deep ? AV_PIX_FMT_YUV420P10LE : AV_PIX_FMT_YUV420P);
      EXPECT_EQ(frame->pts, 77);
      EXPECT_EQ(frame->color_range, AVCOL_RANGE_JPEG);
      for (int plane : {0, 1, 2})
        for (int y = 0; y < (plane ? (height + 1) / 2 : height); ++y)
          for (int x = 0; x < (plane ? (width + 1) / 2 : width); ++x) {
            const uint8_t* row = frame->data[plane] + frame->linesize[plane] * y;
            const int got = deep ? reinterpret_cast<const uint16_t*>(row)[x] : row[x];
            ASSERT_EQ(got, value(plane, x, y)) << plane << " " << x << " " << y;
          }
      const int planar = frame->format;
      ASSERT_TRUE(make_planar(frame.get()));
      EXPECT_EQ(frame->format, planar);
    }
}

// The real thing.
TEST(VideoDeviceTest, NvdecGivesTheCpusPixels) {
  std::string why;
  const std::shared_ptr<VideoDevice> device = find_video_device(&why);
  if (!device) GTEST_SKIP() << why;
  device->backend = VideoBackend::kNvdec;
  for (const char* name : kClips) {
    SCOPED_TRACE(name);
    expect_same(decode(name, device), decode(name, nullptr));
    expect_same(decode(name, device, 5), decode(name, nullptr, 5));
  }
  EXPECT_GT(device->clips(), 0);
  EXPECT_EQ(device->failures(), 0);
}

}  // namespace
}  // namespace mso
