#include "io/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "io/resize_kernels.h"
#include "tests/unit/io/image_fixture.h"

namespace mso {
namespace {

Image noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  Image image{width, height, std::vector<uint8_t>(size_t(width) * height * 3)};
  for (auto& v : image.rgb) v = static_cast<uint8_t>(random());
  return image;
}

constexpr Resample kAll[] = {Resample::kNearest, Resample::kLanczos, Resample::kBilinear,
                             Resample::kBicubic, Resample::kBox,     Resample::kHamming};

TEST(Resize, GivesTheBytesOfPillow) {
  const std::string source = image_fixture("resize-source.rgb");
  const Image image{41, 30, std::vector<uint8_t>(source.begin(), source.end())};
  int count = 0;
  for (const auto& row : image_fixture_table("resize.txt")) {
    const Image got =
        resize(image, std::stoi(row[1]), std::stoi(row[2]), static_cast<Resample>(std::stoi(row[3])));
    const std::string expected = image_fixture(row[0]);
    EXPECT_EQ(got.rgb, std::vector<uint8_t>(expected.begin(), expected.end())) << row[0];
    ++count;
  }
  EXPECT_EQ(count, 42);
}

TEST(Resize, AllKernelsGiveTheSameBytes) {
  std::mt19937 random(1);
  auto upto = [&](int n) { return static_cast<int>(random() % n) + 1; };
  for (int i = 0; i < 90; ++i) {
    const Image image = noise(upto(90), upto(90), i);
    const int width = upto(120), height = upto(120);
    const bool narrow = i % 2 == 1;
    const Resample filter = narrow ? kAll[1 + i % 3] : kAll[1 + i % 5];
    const ImageBackend backend = narrow ? ImageBackend::kTorchvision : ImageBackend::kPil;
    std::vector<uint8_t> first;
    for (const auto& kernels : all_resize_kernels()) {
      std::vector<uint8_t> out(size_t(width) * height * 3);
      resize_window(image, width, height, filter, {0, 0, width, height}, out.data(), backend, kernels);
      if (first.empty()) first = out;
      EXPECT_EQ(out, first) << kernels.name << " " << image.width << "×" << image.height << " to " << width
                            << "×" << height;
    }
  }
}

TEST(Resize, AWindowIsThatPartOfTheWhole) {
  std::mt19937 random(2);
  auto upto = [&](int n) { return static_cast<int>(random() % n) + 1; };
  for (int i = 0; i < 120; ++i) {
    const Image image = noise(upto(70), upto(70), i);
    const int width = i % 9 == 0 ? image.width : upto(80), height = i % 7 == 0 ? image.height : upto(80);
    const ImageBackend backend = i % 4 == 3 ? ImageBackend::kTorchvision : ImageBackend::kPil;
    const Resample filter = kAll[backend == ImageBackend::kPil ? i % 6 : i / 4 % 4];
    const Image whole = resize(image, width, height, filter, backend);
    Window window;
    window.width = upto(width);
    window.height = upto(height);
    window.x = upto(width - window.width + 1) - 1;
    window.y = upto(height - window.height + 1) - 1;
    std::vector<uint8_t> part(size_t(window.width) * window.height * 3);
    resize_window(image, width, height, filter, window, part.data(), backend);
    for (int y = 0; y < window.height; ++y)
      ASSERT_TRUE(std::equal(part.begin() + size_t(y) * window.width * 3,
                             part.begin() + size_t(y + 1) * window.width * 3,
                             whole.rgb.begin() + (size_t(window.y + y) * width + window.x) * 3))
          << "case " << i << " row " << y;
  }
}

TEST(Resize, OneColourStaysThatColour) {
  Image image{50, 40, std::vector<uint8_t>(50 * 40 * 3, 255)};
  for (const Resample filter : kAll)
    for (const auto& [width, height] : {std::pair{7, 90}, {120, 3}, {1, 1}, {300, 300}}) {
      const Image out = resize(image, width, height, filter);
      EXPECT_EQ(std::count(out.rgb.begin(), out.rgb.end(), 255), static_cast<long>(out.rgb.size()));
    }
}

TEST(Resize, ExtremeShapesWork) {
  const Image tall = noise(1, 20000, 3), wide = noise(20000, 1, 4);
  EXPECT_EQ(resize(tall, 1, 1, Resample::kLanczos).rgb.size(), 3u);
  EXPECT_EQ(resize(wide, 3, 2, Resample::kBicubic).rgb.size(), 18u);
  // Only the window is computed: the whole would be 13 GB.
  std::vector<uint8_t> out(224 * 224 * 3);
  resize_window(tall, 224, 4480000, Resample::kBicubic, {0, 2239888, 224, 224}, out.data());
}

TEST(Resize, ImpossibleRequestsAreRefused) {
  const Image image = noise(4, 4, 5);
  uint8_t out[48];
  EXPECT_THROW(resize(image, 0, 4, Resample::kBicubic), Error);
  EXPECT_THROW(resize(image, 4, -1, Resample::kBicubic), Error);
  EXPECT_THROW(resize(Image{}, 4, 4, Resample::kBicubic), Error);
  EXPECT_THROW(resize_window(image, 4, 4, Resample::kBox, {1, 0, 4, 4}, out), Error);
  EXPECT_THROW(resize_window(image, 4, 4, Resample::kBox, {0, 0, 0, 4}, out), Error);
}

}  // namespace
}  // namespace mso
