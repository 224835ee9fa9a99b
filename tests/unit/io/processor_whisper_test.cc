#include "io/processor_whisper.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/file.h"

namespace mso {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "whisper-XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder& put(const std::string& name, const std::string& content) {
    write_file_durably(path / name, content);
    return *this;
  }
  std::filesystem::path path;
};

constexpr const char* kWhisper =
    R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "processor_class": "WhisperProcessor"})";
constexpr const char* kQwen =
    R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "processor_class": "Qwen2AudioProcessor"})";

AudioClip sound(int64_t samples) {
  AudioClip clip{16000, std::vector<float>(samples)};
  for (int64_t i = 0; i < samples; ++i) clip.samples[i] = static_cast<float>(i % 50) / 50 - 0.5f;
  return clip;
}

TEST(WhisperProcessor, FeaturesWithoutTokens) {
  Folder folder;
  folder.put("preprocessor_config.json", kWhisper);
  const auto processor = load_processor(folder.path);
  EXPECT_EQ(processor->family(), "whisper");
  EXPECT_EQ(processor->placeholders().audio, "");
  const ProcessedMedia media = processor->audio(sound(8000));
  ASSERT_EQ(media.tensors.size(), 1u);
  EXPECT_EQ(media.tensors.at("input_features").shape, (std::vector<int64_t>{1, 80, 3000}));
  EXPECT_TRUE(media.tokens.empty());
  EXPECT_THROW(processor->image({1, 1, {0, 0, 0}}), Error);
}

// Counts from Qwen2AudioProcessor of transformers 5.24.
TEST(WhisperProcessor, TokensOfQwen2Audio) {
  Folder folder;
  folder.put("preprocessor_config.json", kQwen);
  const auto processor = load_processor(folder.path);
  EXPECT_EQ(processor->placeholders().audio, "<|AUDIO|>");
  struct Case {
    int64_t samples, mask, tokens;
  };
  for (const auto& [samples, mask, tokens] :
       {Case{0, 0, 0}, Case{1, 1, 0}, Case{320, 2, 0}, Case{321, 3, 1}, Case{640, 4, 1}, Case{16000, 100, 25},
        Case{16001, 101, 25}, Case{480000, 3000, 750}, Case{500000, 3000, 750}}) {
    const ProcessedMedia media = processor->audio(sound(samples));
    EXPECT_EQ(media.feature_count(), tokens) << samples;
    const HostTensor& inside = media.tensors.at("feature_attention_mask");
    ASSERT_EQ(inside.shape, (std::vector<int64_t>{1, 3000}));
    EXPECT_EQ(std::accumulate(inside.data<int32_t>(), inside.data<int32_t>() + 3000, int64_t{0}), mask)
        << samples;
    EXPECT_EQ(dynamic_cast<const WhisperProcessor&>(*processor).audio_tokens(samples), tokens);
  }
}

TEST(WhisperProcessor, ReadsBothSpellingsAndItsOwnFiles) {
  Folder nested;
  nested.put("processor_config.json",
             R"({"processor_class": "Qwen2AudioProcessor", "audio_token": "<sound>", "feature_extractor": {
                 "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "hop_length": 80}})");
  const auto first = load_processor(nested.path);
  EXPECT_EQ(first->placeholders().audio, "<sound>");
  EXPECT_EQ(first->audio(sound(10)).tensors.at("input_features").shape, (std::vector<int64_t>{1, 128, 6000}));
  Folder written;
  for (const auto& [name, content] : first->files()) written.put(name, content);
  const auto second = load_processor(written.path);
  EXPECT_EQ(second->family(), "qwen2_audio");
  EXPECT_EQ(second->files(), first->files());
  EXPECT_EQ(second->audio(sound(999)).tensors.at("input_features").bytes,
            first->audio(sound(999)).tensors.at("input_features").bytes);
}

TEST(WhisperProcessor, RefusesWhatItCannotDo) {
  for (const char* setting : {R"("n_fft": 401)", R"("n_fft": "x")", R"("hop_length": 0)", R"("dither": 0.1)",
                              R"("padding_side": "left")", R"("feature_size": -1)", R"("chunk_length": 0)",
                              R"("feature_extractor_type": "SpeechT5FeatureExtractor")"}) {
    Folder folder;
    folder.put("preprocessor_config.json",
               std::string("{") + setting + R"(, "processor_class": "WhisperProcessor"})");
    try {
      load_processor(folder.path);
      ADD_FAILURE() << setting;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage) << error.what();
    }
  }
  Folder empty;
  empty.put("config.json", R"({"model_type": "whisper"})");
  EXPECT_THROW(load_processor(empty.path), Error);
  Folder folder;
  folder.put("preprocessor_config.json", kWhisper);
  AudioClip fast = sound(100);
  fast.sample_rate = 44100;
  try {
    load_processor(folder.path)->audio(fast);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
  }
}

}  // namespace
}  // namespace mso
