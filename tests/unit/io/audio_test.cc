#include "io/audio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "media_fixture.h"

namespace mso {
namespace {

AudioClip decode(const std::string& name, int rate = 16000) {
  const std::string file = media_fixture(name);
  AudioOptions options;
  options.sample_rate = rate;
  return decode_audio(bytes_of(file), name, options);
}

std::string message_of(const std::string& file, const AudioOptions& options = {}) {
  try {
    decode_audio(bytes_of(file), "sound", options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData) << error.what();
    return error.what();
  }
  return "";
}

// Largest difference to amplitude · sin(2π · 440 t) over the middle half, where lossy codecs and filters have
// settled.
double distance_to_tone(const AudioClip& clip, double amplitude) {
  double worst = 0;
  for (size_t i = clip.samples.size() / 4; i < clip.samples.size() * 3 / 4; ++i) {
    const double t = static_cast<double>(i) / clip.sample_rate;
    worst = std::max(worst, std::abs(clip.samples[i] - amplitude * std::sin(2 * std::numbers::pi * 440 * t)));
  }
  return worst;
}

struct Tone {
  const char* name;
  double seconds, amplitude, tolerance;
};

class ToneFile : public testing::TestWithParam<Tone> {};

// The tone is in the first channel alone, so that the mean over channels divides it by their number.
TEST_P(ToneFile, IsMonoAt16k) {
  const Tone& want = GetParam();
  const AudioClip clip = decode(want.name);
  EXPECT_EQ(clip.sample_rate, 16000);
  // Lossy codecs fill their last block.
  EXPECT_GE(static_cast<double>(clip.samples.size()), want.seconds * 16000 - 32);
  EXPECT_LE(static_cast<double>(clip.samples.size()), want.seconds * 16000 + 0.025 * 16000);
  EXPECT_LT(distance_to_tone(clip, want.amplitude), want.tolerance);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ToneFile,
                         testing::Values(Tone{"tone_16k.wav", 0.25, 0.5, 1e-4},
                                         Tone{"tone_8ch_96k.flac", 0.25, 0.5 / 8, 1e-4},
                                         Tone{"tone_u8.wav", 0.25, 0.5, 0.01},
                                         Tone{"tone_f64.wav", 0.1, 0.5, 1e-3},
                                         Tone{"tone.mp3", 0.5, 0.25, 0.02}, Tone{"tone.m4a", 0.5, 0.5, 0.03},
                                         Tone{"tone.opus", 0.5, 0.5, 0.03}, Tone{"tone.ogg", 0.5, 0.25, 0.02},
                                         Tone{"cover.mp3", 0.5, 0.25, 0.02}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

TEST(Audio, KeepsTheFilesRateWhenAsked) {
  const AudioClip clip = decode("tone_8ch_96k.flac", 0);
  EXPECT_EQ(clip.sample_rate, 96000);
  EXPECT_EQ(clip.samples.size(), 24000u);
  EXPECT_LT(distance_to_tone(clip, 0.5 / 8), 1e-5);
  EXPECT_EQ(decode("tone_16k.wav", 48000).samples.size(), 12000u);
}

TEST(Audio, IsProbed) {
  const std::string file = media_fixture("tone_8ch_96k.flac");
  const AudioInfo info = probe_audio(bytes_of(file), "tone");
  EXPECT_EQ(info.codec, "flac");
  EXPECT_EQ(info.sample_rate, 96000);
  EXPECT_EQ(info.channels, 8);
  EXPECT_NEAR(info.duration_s, 0.25, 1e-3);
  const std::string speech = media_fixture("speech.ogg");
  EXPECT_NEAR(probe_audio(bytes_of(speech), "speech").duration_s,
              static_cast<double>(decode("speech.ogg").samples.size()) / 16000, 0.1);
}

TEST(Audio, OddHeaders) {
  EXPECT_EQ(decode("empty.wav").samples.size(), 0u);
  EXPECT_EQ(decode("empty.wav").sample_rate, 16000);
  const AudioClip one = decode("one_sample.wav");
  ASSERT_EQ(one.samples.size(), 1u);
  EXPECT_EQ(one.samples[0], 0.25f);
  // Four samples of 1 Hz are four seconds.
  const AudioClip slow = decode("one_hertz.wav");
  EXPECT_NEAR(static_cast<double>(slow.samples.size()), 4 * 16000, 16000);
  EXPECT_NEAR(slow.samples[24000], 0.5, 0.2);
  // And too long when the limit is three.
  AudioOptions options;
  options.max_seconds = 3;
  EXPECT_NE(message_of(media_fixture("one_hertz.wav"), options).find("longer than 3 s"), std::string::npos);
  options = {};
  options.limits.max_output_bytes = 1000;
  EXPECT_NE(message_of(media_fixture("tone_16k.wav"), options), "");
}

TEST(Audio, NotANumberIsDamage) {
  std::string file = media_fixture("tone_f64.wav");
  const double nan = std::nan("");
  std::memcpy(file.data() + file.size() - 808, &nan, sizeof nan);
  EXPECT_NE(message_of(file).find("not numbers"), std::string::npos);
}

TEST(Audio, BadFiles) {
  EXPECT_NE(message_of("").find("empty"), std::string::npos);
  EXPECT_NE(message_of(std::string(1000, 'x')), "");
  EXPECT_NE(message_of(media_fixture("h264.mp4")).find("no audio stream"), std::string::npos);
  for (const char* name :
       {"tone_16k.wav", "tone_8ch_96k.flac", "tone.mp3", "tone.m4a", "tone.opus", "tone.ogg"}) {
    const std::string whole = media_fixture(name);
    for (const double part : {0.01, 0.1, 0.5, 0.9}) {
      AudioOptions options;
      options.tolerate_damage = true;
      try {
        const std::string cut =
            whole.substr(0, static_cast<size_t>(part * static_cast<double>(whole.size())));
        const AudioClip clip = decode_audio(bytes_of(cut), "cut", options);
        EXPECT_LE(clip.samples.size(), 16000u);
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
      }
    }
  }
}

TEST(Audio, DamageIsAnErrorUnlessTolerated) {
  std::string file = media_fixture("tone_8ch_96k.flac");
  for (size_t i = file.size() * 4 / 5; i < file.size() * 4 / 5 + 200; ++i)
    file[i] = static_cast<char>(i * 37);
  EXPECT_NE(message_of(file).find("damaged"), std::string::npos);
  AudioOptions options;
  options.tolerate_damage = true;
  const AudioClip clip = decode_audio(bytes_of(file), "sound", options);
  EXPECT_GT(clip.samples.size(), 500u);
  EXPECT_LE(clip.samples.size(), 4010u);
}

TEST(Audio, CanBeStopped) {
  const std::string file = media_fixture("tone.ogg");
  std::atomic<bool> cancelled{true};
  AudioOptions options;
  options.control.cancelled = &cancelled;
  EXPECT_THROW(decode_audio(bytes_of(file), "sound", options), DecodeStopped);
  options.control = {};
  options.control.deadline = std::chrono::steady_clock::now();
  EXPECT_THROW(decode_audio(bytes_of(file), "sound", options), DecodeStopped);
  DecodePlace place;
  options.control = {nullptr, std::chrono::steady_clock::time_point::max(), &place};
  const AudioClip clip = decode_audio(bytes_of(file), "sound", options);
  EXPECT_GT(place.packets, 0);
  EXPECT_GT(place.frames, 0);
}

TEST(Audio, Windows) {
  AudioClip clip{100, std::vector<float>(250)};
  auto windows = split_windows(clip, 1);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].size(), 100u);
  EXPECT_EQ(windows[2].size(), 50u);
  EXPECT_EQ(windows[1].data(), clip.samples.data() + 100);
  clip.samples.resize(200);
  EXPECT_EQ(split_windows(clip, 1).size(), 2u);
  clip.samples.clear();
  EXPECT_EQ(split_windows(clip).size(), 1u);
}

}  // namespace
}  // namespace mso
