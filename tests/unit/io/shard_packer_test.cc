// Packing: captions, folders, shards of limited size; and real pictures, good and damaged, through the whole way.
#include "io/shard_packer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "io/buffer_pool.h"
#include "io/dataset_report.h"
#include "io/dataset_verify.h"
#include "io/image.h"
#include "io/picture_decoder.h"
#include "io/picture_folder.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using Captions = std::map<std::string, std::string>;
using test::TarBytes;
using test::write_text;

std::string jpeg_of(int width, int height, int seed) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height * 3; ++i) image.rgb.push_back(static_cast<uint8_t>(i * (seed + 3) / 7));
  const auto bytes = encode_jpeg(image, 90);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ParseCaptions, StampsAndPlainTexts) {
  EXPECT_EQ(parse_captions("A cat.\nde.utf8=Eine Katze.\npt_BR.utf8= Um gato. \r\nca@valencia.utf8=x\n"),
            (Captions{{"en", "A cat."}, {"de", "Eine Katze."}, {"pt_BR", "Um gato."}, {"ca@valencia", "x"}}));
  EXPECT_EQ(parse_captions("One line\nand another, x.utf8 = no language\n"),
            (Captions{{"en", "One line\nand another, x.utf8 = no language"}}));
  EXPECT_EQ(parse_captions("\xef\xbb\xbf" "With a mark"), (Captions{{"en", "With a mark"}}));
  EXPECT_EQ(parse_captions("\nde.utf8=Nur deutsch"), (Captions{{"de", "Nur deutsch"}}));
  EXPECT_EQ(parse_captions("First wins\nde.utf8=a\nde.utf8=b\nen.utf8=c\n"), (Captions{{"en", "First wins"}, {"de", "a"}}));
  EXPECT_EQ(parse_captions("ok\nde.utf8=\xff\nfr.utf8=\n"), (Captions{{"en", "ok"}}));
  EXPECT_EQ(parse_captions(""), Captions{});
  EXPECT_EQ(parse_captions(" \n\t\n"), Captions{});
  EXPECT_EQ(parse_captions("\xff\xfe"), Captions{});
}

TEST(ScanPictureFolder, FindsSkipsAndSorts) {
  test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "b/c");
  for (const char* name : {"z.png", "z.txt", "b/a.JPG", "b/a.txt", "b/c/x.png", "b/c/x.jpg", "b/c/x.txt", "b/none.png",
                           "b/only.svg", "z.svg", "b/a_desc.ogg", "b/a_desc_de.ogg", "z.dat", "noextension"})
    write_text(folder / name, "text");
  write_text(folder / "bad.png", "");
  write_text(folder / "bad.txt", " ");
  const PictureFolder found = scan_picture_folder(folder.string());
  ASSERT_EQ(found.pictures.size(), 3u);
  EXPECT_EQ(found.pictures[0].picture, "b/a.JPG");
  EXPECT_EQ(found.pictures[0].category, "b");
  EXPECT_EQ(found.pictures[0].speech, "b/a_desc.ogg");
  EXPECT_EQ(found.pictures[1].picture, "b/c/x.png");
  EXPECT_EQ(found.pictures[2].picture, "z.png");
  EXPECT_EQ(found.pictures[2].category, "");
  const std::map<std::string, std::vector<std::string>> skipped = {
      {"bad_caption", {"bad.png"}}, {"no_caption", {"b/none.png"}}, {"same_stem", {"b/c/x.jpg"}}, {"svg", {"b/only.svg"}}};
  EXPECT_EQ(found.skipped, skipped);
  EXPECT_THROW(scan_picture_folder(folder / "missing"), Error);
}

TEST(ShardWriter, EndsShardsAtTheirLimits) {
  test::TemporaryFolder folder;
  ShardWriter writer(folder.string(), {.bytes = 5000, .samples = 3});
  for (int i = 0; i < 7; ++i) writer.add("k" + std::to_string(i), {{"txt", "x"}});
  writer.add("large", {{"txt", std::string(20000, 'x')}});  // larger than a shard may be: a shard of its own
  writer.add(std::string(200, 'n'), {{"txt", "long name"}, {"json", ""}});
  writer.finish();
  EXPECT_EQ(writer.samples(), 9u);
  const auto data = Dataset::open({folder.string()});
  std::vector<size_t> sizes;
  for (uint32_t k = 0; k < data->shard_count(); ++k) sizes.push_back(data->shard_index(k).size());
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 3, 1, 1, 1}));
  EXPECT_EQ(data->sample(8).key, std::string(200, 'n'));
  EXPECT_EQ(data->read(8, *data->sample(8).find("txt")).size(), 9u);
  for (uint64_t id = 0; id < 9; ++id) EXPECT_EQ(data->unusable_reason(id), "");
}

TEST(PackFolder, PacksWhatTrainingReads) {
  test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "src");
  for (int i = 0; i < 20; ++i) {
    write_text(folder / ("src/p" + std::to_string(i) + ".jpg"), jpeg_of(20 + i, 10, i));
    write_text(folder / ("src/p" + std::to_string(i) + ".txt"), "caption " + std::to_string(i));
  }
  write_text(folder / "src/broken.jpg", jpeg_of(20, 20, 1).substr(0, 200));
  write_text(folder / "src/broken.txt", "cut");
  PackOptions options;
  options.limits.samples = 8;
  options.threads = 2;
  uint64_t last = 0;
  const PackSummary summary =
      pack_folder(folder / "src", folder / "out", options, [&](uint64_t done, uint64_t) { last = done; });
  EXPECT_EQ(last, 21u);
  EXPECT_EQ(summary.samples, 20u);
  EXPECT_EQ(summary.shards, 3u);
  ASSERT_EQ(summary.skipped.at("decode_error").size(), 1u);
  EXPECT_NE(summary.skipped.at("decode_error")[0].find("broken.jpg"), std::string::npos);
  const auto data = Dataset::open({folder / "out"});
  std::set<uint32_t> widths;
  for (uint64_t id = 0; id < data->size(); ++id) {
    widths.insert(data->sample(id).picture_width);
    const auto caption = data->read(id, *data->sample(id).find("txt"));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(caption.data()), caption.size()),
              "caption " + std::to_string(data->sample(id).picture_width - 20));
  }
  EXPECT_EQ(widths.size(), 20u);
  EXPECT_TRUE(verify_dataset(*data, {.threads = 2}).empty());
  EXPECT_EQ(dataset_statistics(*data).with_picture, 20u);
  PackOptions no_quality, no_samples;
  no_quality.quality = 0;
  no_samples.limits.samples = 0;
  EXPECT_THROW(pack_folder(folder / "src", folder / "other", no_quality), Error);
  EXPECT_THROW(pack_folder(folder / "src", folder / "other", no_samples), Error);
  EXPECT_THROW(pack_folder(folder / "src", ".", {}), Error);
}

TEST(RealPictures, BadOnesEndInTheLedgerAndGoodOnesAreRight) {
  test::TemporaryFolder folder;
  const std::string jpeg = jpeg_of(64, 48, 2);
  TarBytes tar;
  tar.file("a.jpg", jpeg).file("a.txt", "good");
  tar.file("b.jpg", "").file("b.txt", "0 bytes");
  tar.file("c.jpg", jpeg.substr(0, jpeg.size() / 2)).file("c.txt", "cut at half");
  tar.file("d.jpg", "I am a text").file("d.txt", "text named .jpg");
  tar.file("e.png", jpeg).file("e.txt", "JPEG named .png");  // content decides
  tar.file("f.jpg", std::string(3000, '\xff')).file("f.txt", "noise");
  write_text(folder / "s.tar", tar.end());
  const auto data = Dataset::open({folder.string()});
  const auto bad = verify_dataset(*data, {.threads = 1});
  ASSERT_EQ(bad.size(), 4u);
  const uint64_t ids[] = {1, 2, 3, 5};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(bad[i].id, ids[i]);
    EXPECT_EQ(bad[i].reason, "decode_error");
  }
  const auto assembler =
      test::make_assembler(data, {}, make_picture_decoder(clip_image_processor(32), 4, /*exact_jpeg=*/true));
  BufferPool pool(1 << 20);
  const AssembledSample good = assembler->assemble(0, &pool), other_name = assembler->assemble(4, &pool);
  EXPECT_EQ(good.media.at("pixel_values").bytes, other_name.media.at("pixel_values").bytes);
  const ImageProcessor processor(clip_image_processor(32));
  std::vector<float> expected(processor.size());
  processor.process(decode_image({reinterpret_cast<const std::byte*>(jpeg.data()), jpeg.size()}, "a", {.exact = true}),
                    expected.data());
  ASSERT_EQ(good.media.at("pixel_values").bytes.size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(good.media.at("pixel_values").bytes.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

TEST(BufferPool, GivesTheSameMemoryAgainAndCountsIt) {
  BufferPool pool(1 << 20);
  auto used = [&](Modality m) { return pool.use().parts[static_cast<size_t>(m)].used; };
  EXPECT_EQ(pool.use().parts[static_cast<size_t>(Modality::kAudio)].name, "audio");
  HostTensor a = pool.tensor(DType::kF32, {10});
  const void* memory = a.bytes.data();
  EXPECT_EQ(used(Modality::kImage), 65536u);
  pool.give_back(std::move(a));
  EXPECT_EQ(pool.use().blocks.blocks, 0u);
  HostTensor again = pool.tensor(DType::kU8, {2, 15}, Modality::kAudio);
  EXPECT_EQ(again.bytes.data(), memory);
  EXPECT_EQ(again.bytes.size(), 30u);
  EXPECT_EQ(used(Modality::kAudio), 65536u);
  const HostTensor large = pool.tensor(DType::kU8, {3 << 20});  // the arena has 2 MiB
  EXPECT_EQ(large.bytes.size(), size_t{3} << 20);
  EXPECT_EQ(pool.use().overflows, 1u);
  BufferPool::park(again);
  pool.step_boundary();
  EXPECT_EQ(again.bytes.data(), memory);
  pool.give_back(HostTensor::make(DType::kU8, {40}));
  pool.give_back(HostTensor{});
}

TEST(Histogram, CountsAndPrints) {
  Histogram h({0, 10, 100});
  for (uint64_t v : {0u, 9u, 10u, 99u, 100u, 5000u}) h.add(v);
  EXPECT_EQ(h.counts, (std::vector<uint64_t>{2, 2, 2}));
  EXPECT_NE(h.text("px").find("10-99 px"), std::string::npos);
  EXPECT_NE(h.text("px").find("100+ px"), std::string::npos);
}

}  // namespace
}  // namespace mso
