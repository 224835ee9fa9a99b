#include "io/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "io/image_header.h"
#include "io/jpeg.h"
#include "tests/unit/io/image_fixture.h"

namespace mso {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Image decode(const std::string& file, const std::string& name, const DecodeOptions& options = {}) {
  return decode_image(bytes_of(file), name, options);
}

// The message when decoding fails as it must; "" when it does not fail.
std::string refusal(const std::string& file, const std::string& name) {
  try {
    decode(file, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(name));
    return error.what();
  }
  return "";
}

TEST(Image, EveryKindGivesThePixelsOfPillow) {
  int count = 0;
  for (const auto& row : image_fixture_table("images.txt")) {
    SCOPED_TRACE(row[0]);
    const std::string file = image_fixture(row[0]), expected = image_fixture(row[0] + ".rgb");
    const ImageInfo info = probe_image(bytes_of(file), row[0]);
    EXPECT_EQ(info.width, std::stoi(row[1]));
    EXPECT_EQ(info.height, std::stoi(row[2]));
    std::string extension = row[0].substr(row[0].rfind('.') + 1);
    EXPECT_EQ(info.format, extension == "jpg" ? "jpeg" : extension);
    const Image image = decode(file, row[0]);
    ASSERT_EQ(image.width, info.width);
    ASSERT_EQ(image.height, info.height);
    ASSERT_EQ(image.rgb.size(), expected.size());
    int worst = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(image.rgb[i] - static_cast<uint8_t>(expected[i])));
    // Another libjpeg-turbo may upsample chroma with another rounding.
    EXPECT_LE(worst, row[0].ends_with(".jpg") ? 2 : 0);
    ++count;
  }
  EXPECT_GE(count, 50);
}

TEST(Image, ReusesMemory) {
  Image image;
  for (const char* name : {"420.jpg", "rgb.png", "one.jpg", "palette4.png"}) {
    decode_image(bytes_of(image_fixture(name)), name, {}, &image);
    EXPECT_EQ(image.rgb, decode(image_fixture(name), name).rgb) << name;
  }
}

TEST(Image, DamagedFilesAreRefusedByName) {
  int count = 0;
  for (const auto& row : image_fixture_table("bad.txt")) {
    EXPECT_NE(refusal(image_fixture(row[0]), row[0]), "") << row[0];
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(Image, RefusalsSayWhatIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(image_fixture("empty.jpg"), "empty.jpg"), HasSubstr("empty (0 bytes)"));
  EXPECT_THAT(refusal(image_fixture("text.jpg"), "text.jpg"), HasSubstr("not a picture of a known format"));
  EXPECT_THAT(refusal(image_fixture("no-eoi.jpg"), "no-eoi.jpg"), HasSubstr("remature end"));
  EXPECT_THAT(refusal(image_fixture("bad-crc.png"), "bad-crc.png"),
              HasSubstr("checksum is wrong in chunk IDAT"));
  EXPECT_THAT(refusal(image_fixture("no-iend.png"), "no-iend.png"), HasSubstr("cut short"));
  EXPECT_THAT(refusal(image_fixture("rows-missing.png"), "rows-missing.png"),
              HasSubstr("png picture is damaged"));
  EXPECT_THAT(refusal(image_fixture("hostile.jpg"), "hostile.jpg"), HasSubstr("too large (65500×65500"));
}

// No cut anywhere gives a picture, but for what follows the last pixel of formats without an end mark.
TEST(Image, CutFilesAreRefused) {
  for (const auto& row : image_fixture_table("images.txt")) {
    const std::string file = image_fixture(row[0]);
    for (const double part : {0.02, 0.1, 0.25, 0.5, 0.75, 0.9}) {
      const auto size = static_cast<size_t>(file.size() * part);
      // The first of several GIF frames may be whole.
      if (row[0] == "moving.gif" && part > 0.3) continue;
      EXPECT_NE(refusal(file.substr(0, size), row[0]), "")
          << row[0] << " cut at " << size << " of " << file.size();
    }
  }
}

TEST(Image, JpegAndPngMissingTheirLastByteAreRefused) {
  for (const char* name :
       {"420.jpg", "progressive.jpg", "gray.jpg", "cmyk.jpg", "rgb.png", "interlaced.png"}) {
    const std::string file = image_fixture(name);
    EXPECT_NE(refusal(file.substr(0, file.size() - 1), name), "") << name;
  }
}

// Whatever is in the file: an Error, or a picture of the size that the header says.
TEST(Image, FlippedBytesNeverCrash) {
  int refused = 0, shown = 0;
  for (const auto& row : image_fixture_table("images.txt")) {
    const std::string good = image_fixture(row[0]);
    for (size_t at = 0; at < good.size(); at += std::max<size_t>(1, good.size() / 64)) {
      std::string file = good;
      file[at] = static_cast<char>(~file[at]);
      DecodeOptions options;
      options.max_pixels = 1 << 20;
      try {
        const ImageInfo info = probe_image(bytes_of(file), row[0]);
        const Image image = decode(file, row[0], options);
        EXPECT_EQ(image.width, info.width) << row[0] << " at " << at;
        EXPECT_EQ(image.height, info.height) << row[0] << " at " << at;
        ++shown;
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, shown / 2);
}

TEST(Image, EveryFlippedByteOfPngPixelsIsNoticed) {
  const std::string good = image_fixture("rgb.png");
  const size_t begin = good.find("IDAT"), end = good.find("IEND");
  for (size_t at = begin; at < end - 4; ++at) {
    std::string file = good;
    file[at] ^= 0x10;
    EXPECT_NE(refusal(file, "rgb.png"), "") << at;
  }
}

TEST(Image, LargerThanTheLimitIsRefusedBeforeDecoding) {
  DecodeOptions options;
  options.max_pixels = 37 * 29 - 1;
  EXPECT_THROW(decode(image_fixture("420.jpg"), "420.jpg", options), Error);
  options.max_pixels = 37 * 29;
  EXPECT_EQ(decode(image_fixture("420.jpg"), "420.jpg", options).width, 37);
}

TEST(Image, OrientationsShowTheSamePicture) {
  const Image upright = decode(image_fixture("orientation1.jpg"), "1");
  // Orientation 3 is the same stored picture turned by half: last pixel first.
  const Image turned = decode(image_fixture("orientation3.jpg"), "3");
  ASSERT_EQ(turned.rgb.size(), upright.rgb.size());
  const size_t pixels = upright.rgb.size() / 3;
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ(turned.rgb[3 * i + c], upright.rgb[3 * (pixels - 1 - i) + c]);
  EXPECT_EQ(decode(image_fixture("orientation6.jpg"), "6").width, upright.height);
}

Image smooth(int width, int height) {
  Image image{width, height, std::vector<uint8_t>(size_t(width) * height * 3)};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      uint8_t* p = image.rgb.data() + (size_t(y) * width + x) * 3;
      p[0] = static_cast<uint8_t>(255 * x / width);
      p[1] = static_cast<uint8_t>(255 * y / height);
      p[2] = static_cast<uint8_t>(128 + 64 * ((x / 16 + y / 16) % 2));
    }
  return image;
}

TEST(Jpeg, ReducedScaleIsNeverBelowTheTarget) {
  EXPECT_EQ(jpeg_scale(1024, 1024, 224, 224), 2);
  EXPECT_EQ(jpeg_scale(897, 897, 224, 224), 2);
  EXPECT_EQ(jpeg_scale(880, 1000, 224, 224), 4);
  EXPECT_EQ(jpeg_scale(447, 448, 224, 224), 4);
  EXPECT_EQ(jpeg_scale(446, 448, 224, 224), 8);
  EXPECT_EQ(jpeg_scale(4000, 4000, 224, 224), 1);
  EXPECT_EQ(jpeg_scale(100, 100, 224, 224), 8);
  EXPECT_EQ(jpeg_scale(5000, 5000, 0, 0), 8);
  for (int width = 1; width < 3000; width += 37)
    for (const int target : {1, 14, 224, 336}) {
      const int scale = jpeg_scale(width, width, target, target);
      EXPECT_TRUE(scale == 8 || (width * scale + 7) / 8 >= target) << width << " to " << target;
    }
}

TEST(Jpeg, DecodesAtReducedScale) {
  const auto bytes = encode_jpeg(smooth(640, 400), 90);
  DecodeOptions options;
  options.target_width = 160;
  options.target_height = 100;
  const Image quarter = decode_image(bytes, "made", options);
  EXPECT_EQ(quarter.width, 160);
  EXPECT_EQ(quarter.height, 100);
  options.exact = true;
  EXPECT_EQ(decode_image(bytes, "made", options).width, 640);
  // The colour of the middle is about the same.
  const Image full = decode_image(bytes, "made", options);
  for (size_t c = 0; c < 2; ++c)
    EXPECT_NEAR(quarter.rgb[(50 * 160 + 80) * 3 + c], full.rgb[(202 * 640 + 322) * 3 + c], 4);
}

TEST(Jpeg, EncodingIsRepeatableAndClose) {
  const Image image = smooth(101, 67);
  const auto bytes = encode_jpeg(image, 95);
  EXPECT_EQ(bytes, encode_jpeg(image, 95));
  const Image again = decode_image(bytes, "made");
  ASSERT_EQ(again.rgb.size(), image.rgb.size());
  double sum = 0;
  for (size_t i = 0; i < image.rgb.size(); ++i) sum += std::abs(image.rgb[i] - again.rgb[i]);
  EXPECT_LT(sum / image.rgb.size(), 3);
  EXPECT_LT(encode_jpeg(image, 30).size(), bytes.size());
}

TEST(Jpeg, ImpossiblePicturesAreNotEncoded) {
  EXPECT_THROW(encode_jpeg({}, 90), Error);
  EXPECT_THROW(encode_jpeg({3, 3, std::vector<uint8_t>(5)}, 90), Error);
  EXPECT_THROW(encode_jpeg({70000, 1, std::vector<uint8_t>(210000)}, 90), Error);
}

}  // namespace
}  // namespace mso
