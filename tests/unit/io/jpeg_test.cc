// Our Huffman decoding and the decoding of a part, against libjpeg alone and the whole picture.
#include "io/jpeg.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <jpeglib.h>

#include "base/error.h"
#include "io/image_processor.h"

namespace mso {
namespace {

using Bytes = std::vector<std::byte>;

struct Making {
  int width, height;
  int quality = 90;
  int across = 2, down = 2;  // sampling factors of luma; chroma has 1
  int components = 3;
  bool optimize = false, progressive = false, own_scans = false;
  unsigned restart_interval = 0;
  int noise = 30;  // 0 … 255
};

// A picture made by libjpeg itself.
Bytes make(const Making& m, unsigned seed = 1) {
  std::mt19937 random(seed);
  jpeg_error_mgr errors;
  jpeg_compress_struct c{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &buffer, &size);
  c.image_width = static_cast<JDIMENSION>(m.width);
  c.image_height = static_cast<JDIMENSION>(m.height);
  c.input_components = m.components;
  c.in_color_space = m.components == 1 ? JCS_GRAYSCALE : m.components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, m.quality, TRUE);
  c.optimize_coding = m.optimize;
  c.restart_interval = m.restart_interval;
  if (m.components == 3) {
    c.comp_info[0].h_samp_factor = m.across;
    c.comp_info[0].v_samp_factor = m.down;
  }
  jpeg_scan_info scans[3];
  if (m.progressive) jpeg_simple_progression(&c);
  if (m.own_scans) {
    for (int i = 0; i < 3; ++i) scans[i] = {1, {i}, 0, 63, 0, 0};
    c.scan_info = scans;
    c.num_scans = 3;
  }
  jpeg_start_compress(&c, TRUE);
  std::vector<JSAMPLE> line(size_t(m.width) * m.components);
  for (int y = 0; y < m.height; ++y) {
    for (int x = 0; x < m.width * m.components; ++x) {
      const int even = 128 + 100 * ((x / 40 + y / 23) % 2) - 50 + x % 37;
      line[x] = static_cast<JSAMPLE>(std::clamp(even + static_cast<int>(random() % (2 * m.noise + 1)) - m.noise, 0, 255));
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  const auto* p = reinterpret_cast<const std::byte*>(buffer);
  Bytes bytes(p, p + size);
  std::free(buffer);
  return bytes;
}

struct Decoded {
  std::optional<Image> image;  // none: refused
  std::string error;
};

Decoded decode(const Bytes& bytes, int scale, bool libjpeg_alone, std::optional<JpegPart> part = {}) {
  Decoded result;
  try {
    const ImageHeader header = read_image_header(bytes, "made");
    if (!part) part = JpegPart{{0, jpeg_scaled(header.width, scale)}, {0, jpeg_scaled(header.height, scale)}};
    Image image;
    decode_jpeg(bytes, header, "made", scale, *part, &image, libjpeg_alone);
    result.image = std::move(image);
  } catch (const Error& e) {
    result.error = e.what();
  }
  return result;
}

std::vector<Making> makings() {
  std::vector<Making> all;
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 9}, {64, 48}, {131, 67}, {300, 17}})
    for (const int quality : {3, 50, 92, 100})
      for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}})
        for (const bool optimize : {false, true}) all.push_back({width, height, quality, across, down, 3, optimize});
  for (const int components : {1, 4}) all.push_back({90, 70, 80, 1, 1, components});
  Making other{120, 80};
  other.noise = 255;  // blocks that are full to their last coefficient, and long codes
  other.quality = 100;
  all.push_back(other);
  other.optimize = true;
  all.push_back(other);
  other.progressive = true;
  all.push_back(other);
  other.progressive = false;
  other.own_scans = true;
  all.push_back(other);
  other.own_scans = false;
  other.restart_interval = 3;
  all.push_back(other);
  return all;
}

TEST(Jpeg, GivesThePixelsThatLibjpegGives) {
  unsigned seed = 0;
  for (const Making& m : makings()) {
    const Bytes bytes = make(m, ++seed);
    for (const int scale : {1, 2, 4, 8}) {
      const Decoded ours = decode(bytes, scale, false), theirs = decode(bytes, scale, true);
      ASSERT_TRUE(ours.image && theirs.image) << seed << " " << ours.error << theirs.error;
      EXPECT_EQ(ours.image->width, theirs.image->width);
      ASSERT_EQ(ours.image->rgb, theirs.image->rgb) << "picture " << seed << " at " << scale << "/8";
    }
  }
}

TEST(Jpeg, RefusesTheDamageThatLibjpegRefuses) {
  std::mt19937 random(7);
  size_t refused = 0, read = 0;
  for (const Making& m : {Making{120, 80}, Making{97, 61, 95, 1, 1, 3, true}, Making{64, 64, 60, 2, 1},
                          Making{80, 80, 90, 1, 1, 1}, Making{60, 60, 100, 2, 2, 3, false, false, false, 0, 255}}) {
    const Bytes whole = make(m);
    for (int round = 0; round < 400; ++round) {
      Bytes bytes = whole;
      const size_t at = 2 + random() % (bytes.size() - 2);
      switch (round % 4) {
        case 0:  // any byte
          bytes[at] = static_cast<std::byte>(random());
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at));
          break;
        case 3:
          bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), 1 + round % 9, static_cast<std::byte>(round % 3 ? 0xFF : random()));
          break;
      }
      for (const int scale : {2, 8}) {
        const Decoded ours = decode(bytes, scale, false), theirs = decode(bytes, scale, true);
        ASSERT_EQ(ours.error, theirs.error) << round;
        if (ours.image) {
          ASSERT_EQ(ours.image->rgb, theirs.image->rgb) << round;
        }
        ++(ours.image ? read : refused);
      }
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(read, 200u);
}

TEST(Jpeg, BytesLeftOverAreJudgedByLibjpeg) {
  const Bytes whole = make({50, 40});
  for (const int more : {1, 2, 3, 8, 40})
    for (const int value : {0, 0x55, 0xAA}) {
      Bytes bytes = whole;
      bytes.insert(bytes.end() - 2, more, static_cast<std::byte>(value));
      const Decoded ours = decode(bytes, 8, false), theirs = decode(bytes, 8, true);
      EXPECT_EQ(ours.error, theirs.error);
      ASSERT_EQ(ours.image.has_value(), theirs.image.has_value());
      if (ours.image) {
        EXPECT_EQ(ours.image->rgb, theirs.image->rgb);
      }
    }
}

TEST(Jpeg, APartHasThePixelsOfTheWhole) {
  std::mt19937 random(3);
  auto some = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (const Making& m : {Making{333, 217}, Making{217, 333, 80, 1, 1}, Making{260, 190, 90, 2, 1}, Making{190, 260, 90, 1, 2},
                          Making{300, 90, 90, 1, 1, 1}, Making{129, 301, 90, 1, 1, 4}, Making{200, 150, 90, 4, 1},
                          Making{200, 200, 90, 2, 2, 3, true, true}, Making{210, 170, 90, 2, 2, 3, false, false, true}}) {
    const Bytes bytes = make(m);
    for (const int scale : {1, 2, 4, 8}) {
      const Image whole = *decode(bytes, scale, true).image;
      for (int round = 0; round < 25; ++round) {
        JpegPart part{{some(whole.width), 0}, {some(whole.height), 0}};
        part.columns.end = part.columns.begin + 1 + some(whole.width - part.columns.begin);
        part.rows.end = part.rows.begin + 1 + some(whole.height - part.rows.begin);
        const Image some_of_it = *decode(bytes, scale, round % 2 == 0, part).image;
        ASSERT_EQ(some_of_it.width, whole.width);
        ASSERT_EQ(some_of_it.height, whole.height);
        for (int y = part.rows.begin; y < part.rows.end; ++y)
          for (int x = part.columns.begin * 3; x < part.columns.end * 3; ++x)
            ASSERT_EQ(some_of_it.rgb[size_t(y) * whole.width * 3 + x], whole.rgb[size_t(y) * whole.width * 3 + x])
                << m.width << "×" << m.height << " " << m.across << m.down << " at " << scale << "/8, row " << y << ", column " << x / 3
                << " of rows " << part.rows.begin << "–" << part.rows.end << ", columns " << part.columns.begin << "–" << part.columns.end;
      }
    }
  }
}

TEST(Jpeg, DamageOutsideOfThePartIsNoticed) {
  Bytes bytes = make({160, 320});
  const JpegPart top{{0, 160}, {0, 40}};
  ASSERT_TRUE(decode(bytes, 8, false, top).image);
  Bytes cut(bytes.begin(), bytes.end() - 300);
  EXPECT_FALSE(decode(cut, 8, false, top).image);
  EXPECT_FALSE(decode(cut, 8, true, top).image);
  Bytes unended(bytes.begin(), bytes.end() - 2);
  EXPECT_FALSE(decode(unended, 8, false, top).image);
}

TEST(Jpeg, ACropIsProcessedAsIfAllWereDecoded) {
  for (const auto backend : {ImageBackend::kPil, ImageBackend::kTorchvision})
    for (const Resample filter : {Resample::kBilinear, Resample::kBicubic, Resample::kLanczos})
      for (const auto& [width, height] : {std::pair{640, 200}, {200, 640}, {513, 300}, {301, 515}, {90, 333}, {31, 639}, {224, 224}}) {
        ImageProcessorConfig config = clip_image_processor(56);
        config.resample = filter;
        const ImageProcessor processor(config, backend);
        const Bytes bytes = make({width, height});
        for (const bool exact : {false, true}) {
          const DecodeOptions options = processor.decode_options(width, height, exact);
          DecodeOptions all = options;
          all.used_width = 0;
          std::vector<float> part(processor.size()), whole(processor.size());
          // What is left undefined must not be read: other pixels in it, same result.
          Image image;
          image.rgb.assign(size_t(width) * height * 3, 255);
          decode_image(bytes, "made", options, &image);
          processor.process(image, part.data());
          processor.process(decode_image(bytes, "made", all), whole.data());
          EXPECT_EQ(part, whole) << width << "×" << height << " exact " << exact;
        }
      }
}

}  // namespace
}  // namespace mso
