#include "io/image_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "tests/unit/io/image_fixture.h"

namespace mso {
namespace {

std::string refusal(const std::string& json) {
  try {
    parse_image_processor(json, "preprocessor_config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("preprocessor_config.json"));
    return error.what();
  }
  return "";
}

TEST(ImageProcessor, GivesTheNumbersOfTransformers) {
  for (const auto& row : image_fixture_table("processor.txt")) {
    SCOPED_TRACE(row[0] + " " + row[1]);
    const ImageProcessor processor(parse_image_processor(image_fixture(row[0] + ".json"), row[0]));
    EXPECT_EQ(processor.width(), std::stoi(row[2]));
    EXPECT_EQ(processor.height(), std::stoi(row[3]));
    const std::string file = image_fixture(row[1]);
    std::vector<float> got(processor.size(), -99.f), want(processor.size());
    processor.process(decode_image(std::as_bytes(std::span(file)), row[1]), got.data());
    const std::string expected = image_fixture(row[0] + "-" + row[1] + ".f32");
    ASSERT_EQ(expected.size(), want.size() * sizeof(float));
    std::memcpy(want.data(), expected.data(), expected.size());
    for (size_t i = 0; i < want.size(); ++i)
      if (row[1].ends_with(".png"))
        ASSERT_EQ(got[i], want[i]) << i;
      else
        ASSERT_NEAR(got[i], want[i], 3 / 255. / 0.26) << i;
  }
}

TEST(ImageProcessor, WritesWhatItReads) {
  for (const char* name : {"crop", "larger", "square", "raw", "pad"}) {
    const auto config =
        parse_image_processor(image_fixture(std::string("processor-") + name + ".json"), name);
    EXPECT_EQ(parse_image_processor(to_json(config), "written"), config) << name;
  }
  const auto clip = clip_image_processor(336);
  EXPECT_EQ(parse_image_processor(to_json(clip), "written"), clip);
  EXPECT_EQ(ImageProcessor(clip).size(), 3u * 336 * 336);
}

TEST(ImageProcessor, ReadsOldAndNestedForms) {
  const auto old = parse_image_processor(
      R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "resample": 3})",
      "old");
  EXPECT_EQ(old, clip_image_processor(224));
  const auto nested = parse_image_processor(
      R"({"processor_class": "LlavaProcessor", "image_processor": {"image_processor_type": "CLIPImageProcessorFast",
          "size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}})",
      "nested");
  EXPECT_EQ(nested, clip_image_processor(336));
  const auto siglip = parse_image_processor(
      R"({"image_processor_type": "SiglipImageProcessor", "size": {"height": 384, "width": 384}})", "siglip");
  EXPECT_EQ(ImageProcessor(siglip).width(), 384);
  EXPECT_EQ(siglip.image_mean[0], 0.5);
}

TEST(ImageProcessor, MistakesAreRefusedByKey) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(refusal(R"({"image_processor_type": "Qwen2VLImageProcessor"})"),
              HasSubstr("Qwen2VLImageProcessor"));
  EXPECT_THAT(refusal(R"({"size": {"edge": 3}})"), HasSubstr("size"));
  EXPECT_THAT(refusal(R"({"size": {"shortest_edge": -3}})"), HasSubstr("size"));
  EXPECT_THAT(refusal(R"({"size": {"shortest_edge": 2.5}})"), HasSubstr("size"));
  EXPECT_THAT(refusal(R"({"crop_size": "big"})"), HasSubstr("crop_size"));
  EXPECT_THAT(refusal(R"({"resample": 9})"), HasSubstr("resample"));
  EXPECT_THAT(refusal(R"({"image_mean": [1, 2]})"), HasSubstr("image_mean"));
  EXPECT_THAT(refusal(R"({"image_std": [1, 0, 1]})"), HasSubstr("image_std"));
  EXPECT_THAT(refusal(R"({"do_resize": "yes"})"), HasSubstr("do_resize"));
  EXPECT_THAT(refusal(R"({"do_pad": true})"), HasSubstr("do_pad"));
  EXPECT_THAT(refusal(R"({"do_center_crop": false})"), HasSubstr("varying sizes"));
}

TEST(ImageProcessor, DecodesNoSmallerThanItResizes) {
  const ImageProcessor processor(clip_image_processor(224));
  const DecodeOptions wide = processor.decode_options(1000, 500);
  EXPECT_EQ(wide.target_width, 448);
  EXPECT_EQ(wide.target_height, 224);
  auto padded = clip_image_processor(224);
  padded.type = "LlavaImageProcessor";
  padded.do_pad = true;
  const DecodeOptions square = ImageProcessor(padded).decode_options(1000, 500);
  EXPECT_EQ(square.target_width, 224);
  EXPECT_EQ(square.target_height, 112);
}

TEST(ImageProcessor, AbsurdShapesAreRefusedNotOverflown) {
  const ImageProcessor processor(clip_image_processor(32768));
  EXPECT_GT(processor.decode_options(1 << 30, 1).target_width, 0);
  const Image line{40000, 1, std::vector<uint8_t>(120000)};
  float nothing_is_written;
  EXPECT_THROW(processor.process(line, &nothing_is_written), Error);
}

TEST(ImageProcessor, EveryShapeFillsTheOutput) {
  const ImageProcessor processor(clip_image_processor(32));
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 3000}, {3000, 1}, {31, 33}, {32, 32}, {5, 64}}) {
    const Image image{width, height, std::vector<uint8_t>(size_t(width) * height * 3, 200)};
    std::vector<float> out(processor.size(), -99.f);
    processor.process(image, out.data());
    for (const float v : out) ASSERT_GT(v, 0.5f) << width << "×" << height;
  }
}

}  // namespace
}  // namespace mso
