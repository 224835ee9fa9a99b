#include "io/processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "io/anyres.h"
#include "io/processor_internvl.h"
#include "io/processor_qwen2_vl.h"
#include "tests/unit/io/image_fixture.h"

namespace mso {
namespace {

using Json = nlohmann::json;

const Json& fixtures() {
  static const Json all = Json::parse(image_fixture("../processor/cases.json"));
  return all;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = testing::TempDir() + "processor-XXXXXX";
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::unique_ptr<MediaProcessor> load(const Json& files, const ProcessorOptions& options = {}) {
  TemporaryFolder folder;
  for (const auto& [name, content] : files.items())
    write_file_durably(folder.path / name, content.is_string() ? content.get<std::string>() : content.dump());
  return load_processor(folder.path, options);
}

ProcessorOptions with(const std::string& backend) {
  ProcessorOptions options;
  options.image_backend = backend == "pil" ? ImageBackend::kPil : ImageBackend::kTorchvision;
  return options;
}

Image picture() {
  const std::string source = image_fixture("resize-source.rgb");
  return {41, 30, std::vector<uint8_t>(source.begin(), source.end())};
}

// Each frame rolled down by five rows more.
VideoClip clip(int frames) {
  const Image image = picture();
  VideoClip clip;
  clip.width = image.width;
  clip.height = image.height;
  clip.frames_per_second = 24;
  clip.total_frames = 10 * frames;
  const size_t row = size_t{3} * image.width;
  for (int i = 0; i < frames; ++i) {
    clip.timestamps_s.push_back(i / 24.);
    clip.frame_indices.push_back(i);
    for (int y = 0; y < image.height; ++y) {
      const auto* from = image.rgb.data() + row * ((y - 5 * i % image.height + image.height) % image.height);
      clip.rgb.insert(clip.rgb.end(), from, from + row);
    }
  }
  return clip;
}

std::string bytes_of(const HostTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

template <typename Call>
std::string refusal(ExitCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code) << error.what();
    return error.what();
  }
  return "not refused";
}

Json folder_of(const std::string& family) {
  return fixtures()["folders"][family];
}

TEST(Processors, GiveTheTensorsAndTokensOfTransformers) {
  for (const Json& test : fixtures()["cases"]) {
    const std::string name = test["name"];
    SCOPED_TRACE(name);
    const auto processor = load(folder_of(test["folder"]), with(test["backend"]));
    const bool image = test["kind"] == "image";
    const ProcessedMedia got = image ? processor->image(picture()) : processor->video(clip(3));
    EXPECT_EQ(text_of(got.tokens), test["text"]);
    for (const auto& [tensor, shape] : test["tensors"].items()) {
      ASSERT_TRUE(got.tensors.contains(tensor)) << tensor;
      EXPECT_EQ(got.tensors.at(tensor).shape, shape.get<std::vector<int64_t>>()) << tensor;
      EXPECT_TRUE(bytes_of(got.tensors.at(tensor)) == image_fixture("../processor/" + name + "." + tensor))
          << tensor;
    }
    int64_t tokens = 0;
    for (const TokenRun& run : got.tokens)
      if (!run.text) tokens += run.count;
    EXPECT_EQ(image ? processor->image_tokens(41, 30) : processor->video_tokens(3, 41, 30), tokens);
  }
}

TEST(Processors, SizesAreThoseOfTransformers) {
  const std::vector<PictureSize> grids = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  int count = 0;
  for (const auto& row : image_fixture_table("../processor/sizes.txt")) {
    std::vector<int> v;
    for (const std::string& word : row) v.push_back(std::stoi(word));
    const PictureSize size{v[0], v[1]};
    SCOPED_TRACE(row[0] + "×" + row[1]);
    if (v[2] == 0)
      EXPECT_THAT(refusal(ExitCode::kBadData, [&] { smart_resize(size, 28, 3136, 28 * 28 * 256); }),
                  testing::HasSubstr("200 times"));
    else
      EXPECT_EQ(smart_resize(size, 28, 3136, 28 * 28 * 256), (PictureSize{v[2], v[3]}));
    EXPECT_EQ(best_grid(size, grids), (PictureSize{v[4], v[5]}));
    EXPECT_EQ(tile_grid(size, {448, 448}, 1, 12), (PictureSize{v[6], v[7]}));
    ++count;
  }
  EXPECT_EQ(count, 70);
}

TEST(Processors, WriteWhatTheyRead) {
  for (const auto& [family, files] : fixtures()["folders"].items()) {
    const auto first = load(files)->files();
    EXPECT_FALSE(first.empty()) << family;
    const auto again = load(Json(first));
    EXPECT_EQ(again->files(), first) << family;
    EXPECT_EQ(again->family(), family);
  }
}

TEST(Processors, NestedFilesOfTransformers5AreTheSame) {
  for (const auto& [family, files] : fixtures()["folders"].items()) {
    Json nested = files.value("processor_config.json", Json::object());
    nested["image_processor"] = files["preprocessor_config.json"];
    if (!nested.contains("processor_class"))
      nested["processor_class"] = files["preprocessor_config.json"]["processor_class"];
    if (files.contains("video_preprocessor_config.json"))
      nested["video_processor"] = files["video_preprocessor_config.json"];
    EXPECT_EQ(load({{"processor_config.json", nested}})->files(), load(files)->files()) << family;
  }
}

TEST(Processors, TheFamilyIsFoundByTheModelToo) {
  Json files = folder_of("qwen2_vl");
  files.erase("processor_config.json");
  files["config.json"] = {{"model_type", "qwen2_5_vl"}};
  EXPECT_EQ(load(files)->family(), "qwen2_5_vl");
  files.erase("config.json");
  EXPECT_EQ(load(files)->family(), "qwen2_vl");  // by the image processor
}

TEST(Processors, LlavaWithoutProcessorConfigCountsByTheModel) {
  Json files{{"preprocessor_config.json", folder_of("llava")["preprocessor_config.json"]}};
  files["config.json"] = {{"model_type", "llava"},
                          {"vision_feature_select_strategy", "default"},
                          {"vision_config", {{"patch_size", 2}, {"model_type", "clip_vision_model"}}}};
  EXPECT_EQ(load(files)->image_tokens(100, 100), 16);
  files["config.json"]["vision_config"]["model_type"] = "siglip_vision_model";
  files["config.json"]["vision_feature_select_strategy"] = "full";
  EXPECT_EQ(load(files)->image_tokens(100, 100), 16);
  files["config.json"].erase("vision_config");
  EXPECT_THAT(refusal(ExitCode::kBadUsage, [&] { load(files); }), testing::HasSubstr("patch_size"));
}

TEST(Processors, TokensAreNamedByTheTokenizer) {
  Json files = folder_of("internvl");
  files["tokenizer_config.json"] = {{"extra_special_tokens", {{"start_image_token", "<a>"}}},
                                    {"end_image_token", {{"content", "<b>"}}},
                                    {"context_image_token", "<c>"}};
  const auto processor = load(files);
  EXPECT_THAT(text_of(processor->image(picture()).tokens), testing::StartsWith("<a><c><c>"));
  EXPECT_THAT(text_of(processor->image(picture()).tokens), testing::EndsWith("<c><b>"));
  EXPECT_EQ(processor->placeholders().image, "<c>");
}

TEST(Processors, MemoryComesFromThePool) {
  ProcessorOptions options;
  options.pool = std::make_shared<BufferPool>(1 << 20);
  const auto processor = load(folder_of("qwen2_vl"), options);
  ProcessedMedia media = processor->image(picture());
  const std::string first = bytes_of(media.tensors.at("pixel_values"));
  const void* memory = media.tensors.at("pixel_values").bytes.data();
  std::memset(media.tensors.at("pixel_values").bytes.data(), 0x7f, first.size());
  options.pool->give_back(std::move(media.tensors.at("pixel_values")));
  media = processor->image(picture());
  EXPECT_EQ(media.tensors.at("pixel_values").bytes.data(), memory);
  EXPECT_TRUE(bytes_of(media.tensors.at("pixel_values")) == first);
}

TEST(Processors, ThreadsDoNotDisturbEachOther) {
  for (const auto& [family, files] : fixtures()["folders"].items()) {
    const auto processor = load(files);
    const Image image = picture();
    auto pixels = [&] {
      std::string all;
      for (const auto& [name, tensor] : processor->image(image).tensors) all += bytes_of(tensor);
      return all;
    };
    const std::string expected = pixels();
    std::vector<std::thread> threads;
    std::array<bool, 4> same{};
    for (bool& mine : same)
      threads.emplace_back([&] {
        mine = true;
        for (int i = 0; i < 20; ++i) mine &= pixels() == expected;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(same, testing::Each(true)) << family;
  }
}

// A JPEG decoded at half its size takes the grid and the tokens of the whole.
TEST(Processors, GridsGoByTheFullSize) {
  const Image half = picture();
  for (const auto& [family, files] : fixtures()["folders"].items()) {
    const auto processor = load(files);
    const ProcessedMedia got = processor->image(half, {82, 59});
    int64_t tokens = 0;
    for (const TokenRun& run : got.tokens) tokens += run.count;
    EXPECT_EQ(tokens, processor->image_tokens(82, 59)) << family;
    const DecodeOptions options = processor->decode_options(820, 590, false);
    EXPECT_GT(options.target_width, 0) << family;
    EXPECT_FALSE(options.exact);
    EXPECT_TRUE(processor->decode_options(820, 590, true).exact);
  }
}

TEST(Processors, DataThatTransformersRefusesIsBadData) {
  const auto qwen = load(folder_of("qwen2_vl"));
  Image narrow{1, 201, std::vector<uint8_t>(603)};
  EXPECT_THAT(refusal(ExitCode::kBadData, [&] { qwen->image(narrow); }), testing::HasSubstr("1×201"));
  EXPECT_THAT(refusal(ExitCode::kBadData, [&] { qwen->image_tokens(1, 201); }),
              testing::HasSubstr("200 times"));
  narrow.height = 200;
  EXPECT_GT(qwen->image(narrow).feature_count(), 0);
  VideoClip flat = clip(1);
  flat.width = 41 * 30;
  flat.height = 1;
  EXPECT_THAT(refusal(ExitCode::kBadData, [&] { qwen->video(flat); }), testing::HasSubstr("200 times"));
  Image line{3000, 1, std::vector<uint8_t>(9000)};
  EXPECT_THAT(refusal(ExitCode::kBadData, [&] { load(folder_of("fuyu"))->image(line); }),
              testing::HasSubstr("narrow"));

  for (const auto& [family, files] : fixtures()["folders"].items()) {
    const auto processor = load(files);
    if (!processor->placeholders().video.empty()) {
      EXPECT_THAT(refusal(ExitCode::kBadData, [&] { processor->video(VideoClip{}); }),
                  testing::HasSubstr("without frames"));
    }
  }
}

TEST(Processors, ExtremeShapesAreProcessed) {
  for (const auto& [family, files] : fixtures()["folders"].items()) {
    if (family == "fuyu" || family.starts_with("qwen")) continue;
    for (const std::string backend : {"pil", "torchvision"}) {
      const auto processor = load(files, with(backend));
      EXPECT_NO_THROW(processor->image({1, 1, {1, 2, 3}})) << family;
      EXPECT_NO_THROW(processor->image({1, 3000, std::vector<uint8_t>(9000)})) << family;
      EXPECT_NO_THROW(processor->image({3000, 1, std::vector<uint8_t>(9000)})) << family;
    }
  }
}

TEST(Processors, ClipsAreFilledUpWithTheirLastFrame) {
  const auto processor = load(folder_of("qwen2_vl"));
  const std::string odd = bytes_of(processor->video(clip(1)).tensors.at("pixel_values_videos"));
  VideoClip twice = clip(1);
  twice.timestamps_s.push_back(1);
  const auto once = twice.rgb;
  twice.rgb.insert(twice.rgb.end(), once.begin(), once.end());
  EXPECT_TRUE(bytes_of(processor->video(twice).tensors.at("pixel_values_videos")) == odd);
}

TEST(Processors, FramesAreCappedByTheWholeVideo) {
  Json files = folder_of("qwen2_vl");
  files["video_preprocessor_config.json"]["cap_pixels_per_frame"] = true;
  files["video_preprocessor_config.json"]["max_video_tokens"] = 20;
  const auto capped = load(files), free = load(folder_of("qwen2_vl"));
  EXPECT_EQ(capped->video_tokens(2, 41, 30), free->video_tokens(2, 41, 30));
  EXPECT_LT(capped->video_tokens(8, 41, 30), free->video_tokens(8, 41, 30));
}

TEST(Processors, MistakesInFoldersAreNamed) {
  auto changed = [](const std::string& family, const std::string& file, const std::string& key,
                    const Json& value) {
    Json files = folder_of(family);
    files[file][key] = value;
    return refusal(ExitCode::kBadUsage, [&] { load(files); });
  };
  const std::string image = "preprocessor_config.json", processor = "processor_config.json";
  EXPECT_THAT(
      changed("qwen2_vl", image, "patch_size", 0),
      testing::AllOf(testing::HasSubstr("preprocessor_config.json"), testing::HasSubstr("patch_size")));
  EXPECT_THAT(changed("qwen2_vl", image, "merge_size", "two"), testing::HasSubstr("merge_size"));
  EXPECT_THAT(changed("qwen2_vl", image, "min_pixels", -1), testing::HasSubstr("min_pixels"));
  EXPECT_THAT(changed("qwen2_vl", "video_preprocessor_config.json", "image_std", 0),
              testing::HasSubstr("image_std"));
  EXPECT_THAT(changed("qwen2_vl", processor, "processor_class", "OtherProcessor"),
              testing::HasSubstr("OtherProcessor"));
  EXPECT_THAT(changed("llava_next", image, "image_grid_pinpoints", Json::array()),
              testing::HasSubstr("image_grid_pinpoints"));
  EXPECT_THAT(changed("llava_next", image, "image_grid_pinpoints", {{1, 2, 3}}),
              testing::HasSubstr("image_grid_pinpoints"));
  EXPECT_THAT(changed("llava_next", processor, "vision_feature_select_strategy", "best"),
              testing::HasSubstr("strategy"));
  EXPECT_THAT(changed("llava_onevision", processor, "vision_aspect_ratio", "anyres"),
              testing::HasSubstr("anyres_max_"));
  EXPECT_THAT(changed("internvl", image, "size", {{"shortest_edge", 3}}), testing::HasSubstr("size"));
  EXPECT_THAT(changed("internvl", image, "max_patches", 1.5), testing::HasSubstr("max_patches"));
  EXPECT_THAT(changed("fuyu", image, "padding_mode", "reflect"), testing::HasSubstr("padding_mode"));
  EXPECT_THAT(changed("fuyu", image, "padding_value", 256), testing::HasSubstr("padding_value"));

  EXPECT_THAT(refusal(ExitCode::kBadUsage,
                      [] {
                        load({{"config.json", {{"model_type", "bert"}}}});
                      }),
              testing::AllOf(testing::HasSubstr("bert"), testing::HasSubstr("qwen2_vl")));
  EXPECT_THAT(refusal(ExitCode::kBadUsage,
                      [] {
                        load({{"config.json", "{"}});
                      }),
              testing::HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage,
                      [] {
                        load({{"config.json", "[]"}});
                      }),
              testing::HasSubstr("object"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage,
                      [] {
                        load({{"config.json", {{"model_type", "fuyu"}}}});
                      }),
              testing::HasSubstr("image processor"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage, [] { load_processor("/nowhere"); }),
              testing::HasSubstr("/nowhere"));
}

TEST(Processors, OtherMediaAreRefused) {
  const auto processor = load(folder_of("clip"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage, [&] { processor->video(clip(1)); }), testing::HasSubstr("videos"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage, [&] { processor->audio({}); }), testing::HasSubstr("sounds"));
  EXPECT_THAT(refusal(ExitCode::kBadUsage, [&] { load(folder_of("llava_next"))->video(clip(1)); }),
              testing::HasSubstr("llava_next"));
}

}  // namespace
}  // namespace mso
