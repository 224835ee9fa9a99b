// One sample to tokens, labels and pixels: template, cutting, and a reason for everything that cannot be used.
#include "io/sample_assembler.h"

#include <gtest/gtest.h>

#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::fake_picture;
using test::TarBytes;

constexpr int64_t kBos = 257, kEos = 258, kImage = 259;  // of the byte tokenizer

class AssemblerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const SampleAssembler> with(const TarBytes& tar, AssemblerOptions options = {}) {
    test::write_text(folder_ / "s.tar", tar.end());
    return test::make_assembler(Dataset::open({folder_.string()}), options);
  }
  std::string reason(const SampleAssembler& assembler, uint64_t id) {
    try {
      assembler.assemble(id);
      return "good";
    } catch (const BadSampleError& error) {
      EXPECT_FALSE(error.detail().empty());
      EXPECT_STREQ(reason_name(reason_code(error.reason())), error.reason().c_str());
      return error.reason();
    }
  }
  test::TemporaryFolder folder_;
};

TEST_F(AssemblerTest, PutsTheImageBeforeTheCaptionAndLearnsTheCaptionOnly) {
  const auto assembler = with(TarBytes().file("a.png", fake_picture(5, 5, 3)).file("a.txt", " Hi\n"));
  const AssembledSample sample = assembler->assemble(0);
  EXPECT_EQ(sample.tokens, (std::vector<int64_t>{kBos, kImage, kImage, kImage, kImage, 'H', 'i', kEos}));
  const int64_t no = kIgnoreLabel;
  EXPECT_EQ(sample.labels, (std::vector<int64_t>{no, no, no, no, 'H', 'i', kEos, no}));
  EXPECT_EQ(sample.media_positions[Modality::kImage], (std::vector<int64_t>{1, 2, 3, 4}));
  ASSERT_EQ(sample.counts[Modality::kImage], 1u);
  EXPECT_EQ(sample.media.at("pixel_values").data<float>()[0], static_cast<float>('3'));
  EXPECT_EQ(assembler->cost(0).picture, 4);
  EXPECT_GE(assembler->cost(0).text, 4);
}

// A member named as those of conversations are stands for the mark too where there is no ordinary picture.
TEST_F(AssemblerTest, TakesAPictureUnderAConversationsName) {
  const auto assembler = with(TarBytes().file("a.image1.png", fake_picture(5, 5, 3)).file("a.txt", "Hi"));
  EXPECT_EQ(assembler->modality(0), Modality::kImage);
  EXPECT_EQ(assembler->assemble(0).counts[Modality::kImage], 1u);
}

// Shards longer and shorter than a block of the index; what the blocks count is what each sample is trained on as.
TEST_F(AssemblerTest, TheIndexCountsModalitiesOfEverySample) {
  std::vector<std::string> media = {"", ".png", ".mp4", ".ogg", ".image1.jpg", ".seg.png", ".flac"};
  uint64_t number = 0;
  for (const int samples : {5000, 3, 4096}) {
    TarBytes tar;
    for (int i = 0; i < samples; ++i, ++number) {
      const std::string key = "k" + std::to_string(number);
      for (size_t k = 0; k < media.size(); ++k)
        if (!media[k].empty() && number % (2 * k + 3) == 0) tar.file(key + media[k], "x");
      tar.file(key + (number % 11 == 0 ? ".json" : ".txt"), number % 22 == 0 ? R"({"messages": []})" : "{}");
      if (number % 13 == 0) tar.file(key + ".json", "{}");
    }
    test::write_text(folder_ / ("s" + std::to_string(samples) + ".tar"), tar.end());
  }
  const auto data = Dataset::open({folder_.string()});
  ASSERT_EQ(data->size(), 9099u);
  const std::shared_ptr<const Tokenizer> bytes = load_tokenizer("bytes");
  PerModality<MediaDecoder> others;
  for (Modality m : {Modality::kVideo, Modality::kAudio}) {
    others[m].token = m == Modality::kVideo ? 260 : 261;
    others[m].decode = [](std::span<const std::byte>, const std::string&, BufferPool*) { return ProcessedMedia{}; };
  }
  const auto has = [&](const ShardSample& sample, Modality m) {
    return std::ranges::any_of(sample.members, [&](const ShardMember& member) { return media_of_extension(member.extension) == m; });
  };
  for (const std::string text_template : {"{caption}", "<image>{caption}", "<video><audio>{caption}", "<video><image><audio>{caption}"})
    for (const bool chat : {false, true}) {
      AssemblerOptions options;
      options.text_template = text_template;
      options.image_token = kImage;
      options.caption = chat ? "txt" : "/caption";
      if (chat)
        options.conversations = std::make_shared<const ConversationEncoder>(bytes, ChatTemplate("{{ messages }}", "t", "{}"), ConversationOptions());
      const SampleAssembler assembler(data, bytes, test::stub_decoder(), options, others);
      PerModality<uint64_t> expected, counted;
      for (uint64_t id = 0; id < data->size(); ++id) {
        const ShardSample sample = data->sample(id);
        const bool talks = chat && sample.find("json") && !sample.find("txt");
        Modality kind = Modality::kText;
        for (const auto& [m, mark] : {std::pair(Modality::kAudio, "<audio>"), {Modality::kImage, "<image>"}, {Modality::kVideo, "<video>"}})
          if (has(sample, m) && (talks || text_template.find(mark) != std::string::npos)) kind = m;
        ASSERT_EQ(assembler.modality(id), kind) << text_template << " " << sample.key;
        ++expected[kind];
      }
      const std::vector<ModalityBlock> blocks = assembler.modality_blocks();
      ASSERT_EQ(blocks.size(), 4u);  // 5000 in two, 3, 4096, by the names of the shards
      uint64_t size = 0;
      for (const ModalityBlock& block : blocks) {
        size += block.size;
        uint64_t sum = 0;
        for (Modality m : kAllModalities) counted[m] += block.counts[m], sum += block.counts[m];
        EXPECT_EQ(sum, block.size);
      }
      EXPECT_EQ(size, data->size());
      EXPECT_EQ(counted, expected) << text_template << chat;
      const ModalityIndex index(blocks, [&](uint64_t id) { return assembler.modality(id); });
      PerModality<uint64_t> k;
      for (uint64_t id = 0; id < data->size(); ++id) ASSERT_EQ(index.select(assembler.modality(id), k[assembler.modality(id)]++), id);
    }
}

// A processor of another kind: words, tokens of its own, several tensors, bos behind the medium.
TEST_F(AssemblerTest, ServesWhatAProcessorPutsInTheText) {
  test::write_text(folder_ / "s.tar", TarBytes()
                                          .file("a.mp4", "abc").file("a.txt", "Hi")
                                          .file("b.png", fake_picture(5, 5, 3)).file("b.txt", "Hi")
                                          .end());
  const std::shared_ptr<const Tokenizer> bytes = load_tokenizer("bytes");
  PerModality<MediaDecoder> decoders;
  MediaDecoder& video = decoders[Modality::kVideo];
  video.token = kImage;
  video.bounds = [](const MediaFacts*) { return MediumBounds{9, 100}; };
  video.decode = [](std::span<const std::byte> file, const std::string&, BufferPool* pool) {
    const auto rows = static_cast<int64_t>(file.size());
    ProcessedMedia media;
    media.tensors["features"] = pool ? pool->tensor(DType::kF32, {rows, 2}) : HostTensor::make(DType::kF32, {rows, 2});
    media.tensors["grid"] = HostTensor::make(DType::kI64, {1, 3});
    std::fill_n(media.tensors["features"].data<float>(), rows * 2, 1.5f);
    std::fill_n(media.tensors["grid"].data<int64_t>(), 3, rows);
    media.tokens = {{"F1: ", 1, false, true}, {"<image>", 2, true}, {"\nF2: ", 1, false, true}, {"<image>", 1, true}};
    return media;
  };
  decoders[Modality::kImage].decode = [bos = bytes->token(kBos).value()](std::span<const std::byte>, const std::string&, BufferPool*) {
    ProcessedMedia media;
    media.tokens = {{"<image>", 3, true}, {bos, 1}};
    return media;
  };
  AssemblerOptions options;
  options.text_template = "<image>V<video>{caption}";
  const auto data = Dataset::open({folder_.string()});
  const SampleAssembler assembler(data, bytes, decoders, options);
  const AssembledSample clip = assembler.assemble(0);
  EXPECT_EQ(clip.tokens, (std::vector<int64_t>{kBos, 'V', 'F', '1', ':', ' ', kImage, kImage, '\n', 'F', '2', ':', ' ', kImage, 'H', 'i', kEos}));
  EXPECT_EQ(clip.media_positions[Modality::kVideo], (std::vector<int64_t>{6, 7, 13}));
  EXPECT_EQ(clip.labels[12], kIgnoreLabel);
  EXPECT_EQ(clip.labels[13], 'H');
  EXPECT_EQ(assembler.cost(0).picture, 9);
  EXPECT_GE(assembler.decoded_bytes(0), 100u);
  const AssembledSample picture = assembler.assemble(1);  // bos is behind the picture, and not in front of it too
  EXPECT_EQ(picture.tokens, (std::vector<int64_t>{kImage, kImage, kImage, kBos, 'V', 'H', 'i', kEos}));
  const MicroBatch batch = join_samples({&clip, &clip}, {0, 0});
  EXPECT_EQ(batch.media.at("grid").dtype, DType::kI64);
  EXPECT_EQ(batch.media.at("grid").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batch.media.at("features").shape, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(batch.media_positions.at("video"), (std::vector<int64_t>{6, 7, 13, 23, 24, 30}));
  // Never cut within a medium, its words included.
  for (int64_t length = 1; length < 17; ++length) {
    options.max_length = length;
    const SampleAssembler cutting(data, bytes, decoders, options);
    if (length < 15)
      EXPECT_EQ(reason(cutting, 0), "too_long") << length;
    else
      EXPECT_EQ(cutting.assemble(0).tokens.size(), static_cast<size_t>(length));
  }
  // A token that the tokenizer lacks and that features go to is a mistake with a name.
  decoders[Modality::kImage].decode = [](std::span<const std::byte>, const std::string&, BufferPool*) {
    ProcessedMedia media;
    media.tokens = {{"<|image_pad|>", 3, true}};
    return media;
  };
  options.max_length = 0;
  try {
    SampleAssembler(data, bytes, decoders, options).assemble(1);
    FAIL();
  } catch (const BadSampleError& error) {
    EXPECT_NE(error.detail().find("<|image_pad|>"), std::string::npos);
  }
}

TEST_F(AssemblerTest, TextOnlySamplesLeaveTheMarkOut) {
  AssemblerOptions options;
  options.text_template = "USER: <image>\nASSISTANT: {caption}";
  const auto assembler = with(TarBytes().file("a.txt", "Hi"), options);
  const AssembledSample sample = assembler->assemble(0);
  const std::string words = "USER: \nASSISTANT: ";
  ASSERT_EQ(sample.tokens.size(), words.size() + 4);
  EXPECT_TRUE(sample.media.empty());
  EXPECT_EQ(std::count(sample.tokens.begin(), sample.tokens.end(), kImage), 0);
  // Words of the template are not learned: the first label stands on the last of them.
  for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(sample.labels[i], kIgnoreLabel);
  EXPECT_EQ(sample.labels[words.size()], 'H');
  EXPECT_EQ(assembler->cost(0).picture, 0);
}

TEST_F(AssemblerTest, WordsOnBothSidesAndImageBehind) {
  AssemblerOptions options;
  options.text_template = "[{caption}]<image>!";
  const auto assembler = with(TarBytes().file("a.png", fake_picture(5, 5)).file("a.txt", "Hi"), options);
  const AssembledSample sample = assembler->assemble(0);
  EXPECT_EQ(sample.tokens,
            (std::vector<int64_t>{kBos, '[', 'H', 'i', ']', kImage, kImage, kImage, kImage, '!', kEos}));
  const int64_t no = kIgnoreLabel;
  EXPECT_EQ(sample.labels, (std::vector<int64_t>{no, 'H', 'i', no, no, no, no, no, no, no, no}));
}

TEST_F(AssemblerTest, CutsTextAtItsEndAndNeverTheImage) {
  const TarBytes tar = TarBytes().file("a.png", fake_picture(5, 5)).file("a.txt", "abc");  // 1 + 4 + 3 + 1 positions
  for (int64_t limit = 1; limit <= 10; ++limit) {
    AssemblerOptions options;
    options.max_length = limit;
    const auto assembler = with(tar, options);
    if (limit < 6) {
      EXPECT_EQ(reason(*assembler, 0), "too_long") << limit;
      continue;
    }
    const AssembledSample sample = assembler->assemble(0);
    EXPECT_EQ(sample.tokens.size(), static_cast<size_t>(std::min<int64_t>(limit, 9)));
    EXPECT_EQ(sample.cut, limit < 9);
    EXPECT_EQ(sample.tokens.back() == kEos, limit >= 9);
    EXPECT_EQ(sample.labels.back(), kIgnoreLabel);
    EXPECT_EQ(sample.labels[4], 'a');
    EXPECT_LE(assembler->cost(0).total(), limit);
  }
}

TEST_F(AssemblerTest, EverythingBadHasItsReason) {
  TarBytes tar;
  tar.file("a.png", fake_picture(5, 5));                                                 // 0 no caption
  tar.file("b.png", fake_picture(5, 5)).file("b.txt", " \n");                            // 1
  tar.file("c.png", fake_picture(5, 5)).file("c.txt", "\xff\xfe");                       // 2
  tar.file("d.png", "").file("d.txt", "zero bytes");                                     // 3
  tar.file("e.jpg", "broken").file("e.txt", "text named jpg");                           // 4
  tar.file("f.png", fake_picture(5, 5)).file("f.txt", "one").file("f.png", "").file("f.txt", "two");  // 5
  tar.file("g.png", fake_picture(5, 5)).file("g.txt", "has <image> in it");              // 6
  tar.file("h.png", fake_picture(70000, 5)).file("h.txt", "too wide");                       // 7
  tar.file("i.txt", std::string((1 << 20) + 1, 'x'));                                    // 8
  tar.file("j.x.jpg", "picture").file("j.txt", "half");                                  // 9
  const auto assembler = with(tar);
  const char* reasons[] = {"no_caption",   "empty_caption",    "bad_text", "decode_error", "decode_error",
                           "duplicate_member", "bad_text", "decode_error", "too_large", "odd_name"};
  for (uint64_t id = 0; id < std::size(reasons); ++id) EXPECT_EQ(reason(*assembler, id), reasons[id]) << id;
}

TEST_F(AssemblerTest, CaptionFromJson) {
  AssemblerOptions options;
  options.caption = "/captions/en";
  TarBytes tar;
  tar.file("a.json", R"({"captions":{"en":"Hi"}})");
  tar.file("b.json", R"({"captions":{"de":"Hallo"}})");
  tar.file("c.json", R"({"captions":{"en":3}})");
  tar.file("d.json", "{");
  tar.file("e.txt", "no json");
  tar.file("f.json", std::string(100000, '['));
  const auto assembler = with(tar, options);
  const char* reasons[] = {"good", "no_caption", "bad_json", "bad_json", "no_caption", "bad_json"};
  for (uint64_t id = 0; id < std::size(reasons); ++id) EXPECT_EQ(reason(*assembler, id), reasons[id]) << id;
  EXPECT_EQ(assembler->assemble(0).tokens, (std::vector<int64_t>{kBos, 'H', 'i', kEos}));
}

TEST_F(AssemblerTest, RefusesWrongTemplatesAndPointers) {
  for (const char* text : {"", "<image>", "{caption}{caption}", "<image><image>{caption}"}) {
    AssemblerOptions options;
    options.text_template = text;
    EXPECT_THROW(with(TarBytes().file("a.txt", "x"), options), Error) << text;
  }
  for (const char* caption : {"", "json", "/a~2", "captions/en"}) {
    AssemblerOptions options;
    options.caption = caption;
    EXPECT_THROW(with(TarBytes().file("a.txt", "x"), options), Error) << caption;
  }
}

TEST_F(AssemblerTest, AShardThatShrinksOrVanishesIsAReadError) {
  const auto assembler = with(TarBytes().file("a.txt", "first").file("b.txt", "second"));
  EXPECT_EQ(reason(*assembler, 0), "good");
  std::filesystem::resize_file(folder_ / "s.tar", 700);
  EXPECT_EQ(reason(*assembler, 1), "read_error");
  std::filesystem::remove(folder_ / "s.tar");
  const auto again = assembler;
  EXPECT_EQ(reason(*again, 1), "read_error");
}

TEST_F(AssemblerTest, JoinsSamplesWithoutPadding) {
  const auto assembler = with(TarBytes()
                                  .file("a.png", fake_picture(5, 5, 1))
                                  .file("a.txt", "Hi")
                                  .file("b.txt", "text")
                                  .file("c.png", fake_picture(5, 5, 2))
                                  .file("c.txt", "x"));
  const AssembledSample a = assembler->assemble(0), b = assembler->assemble(1), c = assembler->assemble(2);
  const MicroBatch batch = join_samples({&a, &b, &c}, {0, 1, 2});
  EXPECT_EQ(batch.sample_starts, (std::vector<int64_t>{0, 8, 14, 21}));
  EXPECT_EQ(batch.size(), 21);
  EXPECT_EQ(batch.positions[8], 0);
  EXPECT_EQ(batch.positions[20], 6);
  EXPECT_EQ(batch.media_positions.at("image"), (std::vector<int64_t>{1, 2, 3, 4, 15, 16, 17, 18}));
  const HostTensor& pixels = batch.media.at("pixel_values");
  EXPECT_EQ(pixels.shape, (std::vector<int64_t>{2, 3, 1, 2}));
  EXPECT_EQ(pixels.data<float>()[0], static_cast<float>('1'));
  EXPECT_EQ(pixels.data<float>()[6], static_cast<float>('2'));
  EXPECT_EQ(batch.label_count(), 3 + 5 + 2);
  // Text only: no media at all.
  EXPECT_TRUE(join_samples({&b}, {1}).media.empty());
}

}  // namespace
}  // namespace mso
