#include "io/media_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "media_fixture.h"

namespace mso {
namespace {

MediaBytes reader_of(const std::string& file, uint64_t* read = nullptr, uint64_t claimed = 0) {
  return {claimed > 0 ? claimed : file.size(), [&file, read, claimed](uint64_t offset, void* to, size_t size) {
            const uint64_t end = std::max<uint64_t>(claimed, file.size());
            if (offset >= end) return size_t{0};
            const size_t n = std::min<uint64_t>(size, end - offset);
            std::memset(to, 0, n);
            if (offset < file.size()) std::memcpy(to, file.data() + offset, std::min<uint64_t>(n, file.size() - offset));
            if (read) *read += n;
            return n;
          }};
}

constexpr uint64_t kWhole = 8u << 20;
MediaFactsDraft facts_of(const std::string& file, uint8_t kind, uint64_t most_bytes = kWhole) {
  return read_media_facts(reader_of(file), kind, most_bytes);
}

// What ffprobe 5.1 -count_packets shows; of edit_list.mp4 and wrong_count.avi the frames it decodes (-count_frames).
struct VideoCase {
  const char *name, *codec;
  uint32_t frames, ms, width, height;
  uint16_t rotation = 0;
};
constexpr VideoCase kVideos[] = {
    {"h264.mp4", "h264", 60, 2400, 64, 48},        {"hevc.mp4", "hevc", 40, 1600, 64, 48},
    {"edit_list.mp4", "h264", 47, 1900, 64, 48},   {"one_frame.mp4", "h264", 1, 40, 64, 48},
    {"rot90.mp4", "h264", 1, 40, 64, 48, 90},      {"rot180.mp4", "h264", 1, 40, 64, 48, 180},
    {"rot270.mp4", "h264", 1, 40, 64, 48, 270},    {"damaged.mp4", "h264", 60, 2400, 64, 48},
    {"vfr.mkv", "h264", 24, 2460, 64, 48},         {"open_gop.mkv", "h264", 60, 2400, 64, 48},
    {"open_gop.ts", "h264", 60, 2400, 64, 48},     {"refresh.ts", "h264", 40, 1600, 64, 48},
    {"mpeg2.ts", "mpeg2video", 30, 1200, 64, 48},  {"no_times.avi", "mpeg4", 30, 1200, 64, 48},
    {"wrong_count.avi", "mpeg4", 30, 1200, 64, 48},  // the header says 7 frames
    {"raw.h264", "h264", 30, 1200, 64, 48},        {"vp8.webm", "vp8", 40, 1600, 64, 48},
    {"vp9.webm", "vp9", 40, 1600, 64, 48},
};

TEST(MediaFactsTest, VideosAreAsFfprobeShowsThem) {
  for (const VideoCase& expected : kVideos) {
    SCOPED_TRACE(expected.name);
    const MediaFactsDraft facts = facts_of(media_fixture(expected.name), kHasVideo);
    EXPECT_EQ(facts.kind, kHasVideo);
    EXPECT_EQ(facts.flags, 0);
    EXPECT_EQ(facts.codec, expected.codec);
    EXPECT_EQ(facts.frames, expected.frames);
    EXPECT_NEAR(static_cast<double>(facts.duration_us), 1e3 * expected.ms, 1);
    EXPECT_EQ(facts.width, expected.width);
    EXPECT_EQ(facts.height, expected.height);
    EXPECT_EQ(facts.rotation, expected.rotation);
    EXPECT_NEAR(facts.millihertz, 1e6 * expected.frames / expected.ms, 1);
  }
}

struct SoundCase {
  const char *name, *codec;
  uint32_t us, sample_rate;
  uint16_t channels;
};
constexpr SoundCase kSounds[] = {
    {"tone_16k.wav", "pcm_s16le", 250000, 16000, 1}, {"tone_f64.wav", "pcm_f64le", 100045, 11025, 1},
    {"tone_u8.wav", "pcm_u8", 250000, 8000, 1},      {"one_hertz.wav", "pcm_s16le", 4000000, 1, 1},
    {"one_sample.wav", "pcm_s16le", 63, 16000, 1},   {"empty.wav", "pcm_s16le", 0, 16000, 1},
    {"tone.mp3", "mp3", 548571, 44100, 2},           {"cover.mp3", "mp3", 548571, 44100, 2},
    {"tone.m4a", "aac", 500000, 48000, 1},           {"tone.ogg", "vorbis", 500000, 22050, 2},
    {"speech.ogg", "vorbis", 626939, 11025, 1},      {"tone.opus", "opus", 506500, 48000, 1},
    {"tone_8ch_96k.flac", "flac", 250000, 96000, 8},
};

TEST(MediaFactsTest, SoundsAreAsFfprobeShowsThem) {
  for (const SoundCase& expected : kSounds) {
    SCOPED_TRACE(expected.name);
    const MediaFactsDraft facts = facts_of(media_fixture(expected.name), kHasAudio);
    EXPECT_EQ(facts.kind, kHasAudio);
    EXPECT_EQ(facts.flags, 0);
    EXPECT_EQ(facts.codec, expected.codec);
    EXPECT_NEAR(static_cast<double>(facts.duration_us), expected.us, 1);
    EXPECT_EQ(facts.sample_rate, expected.sample_rate);
    EXPECT_EQ(facts.channels, expected.channels);
  }
}

TEST(MediaFactsTest, WhatCannotBeReadHasNoFacts) {
  MediaFactsDraft none;
  none.flags = kMediaUnreadable;
  for (const uint8_t kind : {kHasVideo, kHasAudio}) {
    none.kind = kind;
    EXPECT_EQ(facts_of("", kind), none);
    EXPECT_EQ(facts_of("y", kind), none);
    EXPECT_EQ(facts_of(std::string(100000, 'y'), kind), none);
  }
  none.kind = kHasVideo;
  EXPECT_EQ(facts_of(media_fixture("tone.ogg"), kHasVideo), none);
  EXPECT_EQ(facts_of(media_fixture("cover.mp3"), kHasVideo), none);  // the cover is no video
  none.kind = kHasAudio;
  EXPECT_EQ(facts_of(media_fixture("h264.mp4"), kHasAudio), none);
}

// A reader whose storage gives nothing, and files that end anywhere: an answer, never more frames than there are.
TEST(MediaFactsTest, CutFilesAreAnswered) {
  EXPECT_EQ(read_media_facts({1000, [](uint64_t, void*, size_t) { return size_t{0}; }}, kHasVideo, kWhole).flags, kMediaUnreadable);
  for (const char* name : {"vfr.mkv", "mpeg2.ts", "no_times.avi", "vp9.webm", "h264.mp4"}) {
    const std::string whole = media_fixture(name);
    const uint32_t frames = facts_of(whole, kHasVideo).frames;
    for (size_t size = 0; size < whole.size(); size += 97) {
      const MediaFactsDraft facts = facts_of(whole.substr(0, size), kHasVideo);
      EXPECT_LE(facts.frames, frames) << name << " cut at " << size;
      EXPECT_EQ(facts.kind, kHasVideo);
    }
  }
}

void add_to_be32(std::string* bytes, size_t at, uint32_t add) {
  uint32_t v = 0;
  for (size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<uint8_t>((*bytes)[at + i]);
  v += add;
  for (size_t i = 0; i < 4; ++i) (*bytes)[at + i] = static_cast<char>(v >> (24 - 8 * i));
}

// The header first, as for streaming; the frames behind the cut are in its table and not in the file.
TEST(MediaFactsTest, FramesBehindTheEndAreNotCounted) {
  const std::string file = media_fixture("h264.mp4");
  const size_t moov = file.rfind("moov") - 4;
  std::string header = file.substr(moov);
  const size_t offsets = header.find("stco");
  ASSERT_NE(offsets, std::string::npos);
  uint32_t count = 0;
  for (size_t i = 0; i < 4; ++i) count = count << 8 | static_cast<uint8_t>(header[offsets + 8 + i]);
  for (uint32_t i = 0; i < count; ++i) add_to_be32(&header, offsets + 12 + 4 * i, static_cast<uint32_t>(header.size()));
  const std::string streamed = file.substr(0, 32) + header + file.substr(32, moov - 32);
  EXPECT_EQ(facts_of(streamed, kHasVideo), facts_of(file, kHasVideo));
  uint32_t before = 61;
  for (const size_t lost : {0, 1, 200, 900, 1800}) {
    const MediaFactsDraft facts = facts_of(streamed.substr(0, streamed.size() - lost), kHasVideo);
    EXPECT_EQ(facts.flags, lost > 0 ? kMediaCut : 0) << lost;
    EXPECT_LT(facts.frames, before) << lost;
    EXPECT_EQ(facts.duration_us, 2400000u) << lost;  // what the header says
    before = facts.frames;
  }
}

TEST(MediaFactsTest, LargeFilesAreNotReadWhole) {
  // Matroska has no table of frames: the header's length and rate remain.
  const MediaFactsDraft video = facts_of(media_fixture("vfr.mkv"), kHasVideo, 100);
  EXPECT_EQ(video.flags, kMediaNotCounted);
  EXPECT_EQ(video.frames, 0u);
  EXPECT_EQ(video.duration_us, 2460000u);
  EXPECT_EQ(video.width, 64u);
  // MP4 has one, and sounds tell their length in the header.
  EXPECT_EQ(facts_of(media_fixture("h264.mp4"), kHasVideo, 0).frames, 60u);
  EXPECT_EQ(facts_of(media_fixture("tone_8ch_96k.flac"), kHasAudio, 0).duration_us, 250000u);
  // Of an MP4 of a GiB only the header is read.
  const std::string file = media_fixture("h264.mp4");
  const uint64_t claimed = uint64_t{1} << 30;
  std::string grown = file + std::string("\0\0\0\0free", 8);
  add_to_be32(&grown, file.size(), static_cast<uint32_t>(claimed - file.size()));
  uint64_t read = 0;
  const MediaFactsDraft facts = read_media_facts(reader_of(grown, &read, claimed), kHasVideo, 0);
  EXPECT_EQ(facts.frames, 60u);
  EXPECT_LT(read, uint64_t{1} << 20);
}

}  // namespace
}  // namespace mso
