// Conversations as samples of shards: what the index tells of them, what they become, and a reason for what cannot be used.
#include "io/conversation_sample.h"

#include <gtest/gtest.h>

#include "io/dataset_report.h"
#include "io/dataset_verify.h"
#include "tests/unit/io/shard_fixture.h"

namespace mso {
namespace {

using test::fake_picture;
using test::TarBytes;

constexpr int64_t kBos = 257, kEos = 258, kImage = 259, kVideo = 260, kAudio = 261;  // of the byte tokenizer
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role[0] ~ ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content ~ '<eos>' }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}";

std::string turns(const std::string& question, const std::string& answer) {
  return R"("conversations": [{"from": "human", "value": ")" + question + R"("}, {"from": "gpt", "value": ")" + answer + R"("}])";
}
// "<n>" of the text stands for the special token of that id.
std::vector<int64_t> ids(const std::string& text) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '<') {
      out.push_back(static_cast<uint8_t>(text[i]));
      continue;
    }
    const size_t end = text.find('>', i);
    out.push_back(std::stoll(text.substr(i + 1, end - i - 1)));
    i = end;
  }
  return out;
}

class ConversationSampleTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> write(const TarBytes& tar) {
    test::write_text(folder_ / "s.tar", tar.end());
    return Dataset::open({folder_.string()});
  }
  // Videos and sounds of one row for each byte of the file.
  static PerModality<MediaDecoder> decoders(bool same_tokens = false) {
    PerModality<MediaDecoder> others;
    for (Modality m : {Modality::kVideo, Modality::kAudio}) {
      MediaDecoder& decoder = others[m];
      decoder.token = m == Modality::kVideo ? kVideo : kAudio;
      decoder.most_tokens = same_tokens ? 2 : 6;
      decoder.same_tokens = same_tokens;
      decoder.most_bytes = 64;
      decoder.decode = [same_tokens, m](std::span<const std::byte> file, const std::string&, BufferPool* pool) {
        const auto rows = static_cast<int64_t>(file.size());
        if (rows > 6) throw Error("damaged", "stub");
        HostTensor tensor = pool ? pool->tensor(DType::kF32, {rows, 2}) : HostTensor::make(DType::kF32, {rows, 2});
        for (int64_t i = 0; i < rows * 2; ++i) tensor.data<float>()[i] = static_cast<float>(file[static_cast<size_t>(i / 2)]);
        return one_tensor(name_of(m), std::move(tensor), same_tokens ? 2 : rows);
      };
    }
    return others;
  }
  static std::shared_ptr<const ConversationEncoder> encoder(int64_t max_length, bool drop, const std::string& source = kTemplate) {
    std::shared_ptr<const Tokenizer> bytes = load_tokenizer("bytes");
    ConversationOptions options;
    options.max_length = max_length;
    options.add_bos = true;
    if (!drop) options.too_long = ConversationOptions::TooLong::kCut;
    return std::make_shared<const ConversationEncoder>(bytes, ChatTemplate(source, "t", bytes->config_text()), options);
  }
  std::shared_ptr<const SampleAssembler> with(std::shared_ptr<const Dataset> data, int64_t max_length = 0, bool drop = false,
                                              PerModality<MediaDecoder> others = {}) {
    AssemblerOptions options;
    options.image_token = kImage;
    options.bytes_per_token = 1;
    options.max_length = max_length;
    options.drop_over_length = drop;
    options.conversations = encoder(max_length, drop);
    return std::make_shared<SampleAssembler>(std::move(data), load_tokenizer("bytes"), test::stub_decoder(2), options, std::move(others));
  }
  std::shared_ptr<const SampleAssembler> with(const TarBytes& tar, int64_t max_length = 0, bool drop = false,
                                              PerModality<MediaDecoder> others = {}) {
    return with(write(tar), max_length, drop, std::move(others));
  }
  // "reason: detail".
  std::string failure(const SampleAssembler& assembler, uint64_t id) {
    try {
      assembler.assemble(id);
      return "good: ";
    } catch (const BadSampleError& error) {
      EXPECT_STREQ(reason_name(reason_code(error.reason())), error.reason().c_str());
      return error.what();
    }
  }
  test::TemporaryFolder folder_;
};

TEST_F(ConversationSampleTest, BecomesTokensLabelsAndPicturesInTheirPlaces) {
  const auto assembler = with(TarBytes()
                                  .file("a.json", R"({"id": "x", "image": ["png", "image1.jpg"], )" + turns("<image>\\nq<image>", "yes") + "}")
                                  .file("a.png", fake_picture(5, 5, 3))
                                  .file("a.image1.jpg", fake_picture(5, 5, 4))
                                  .file("b.json", "{" + turns("q", "no") + "}"));
  const AssembledSample two = assembler->assemble(0);
  EXPECT_EQ(two.tokens, ids("<257>u:<259><259>\nq<259><259>a:yes<258>"));
  std::vector<int64_t> labels(two.tokens.size(), kIgnoreLabel);
  for (size_t i = 10; i < 14; ++i) labels[i] = two.tokens[i + 1];
  EXPECT_EQ(two.labels, labels);
  EXPECT_EQ(two.media_positions[Modality::kImage], (std::vector<int64_t>{3, 4, 7, 8}));
  const HostTensor& pixels = two.media.at("pixel_values");
  EXPECT_EQ(pixels.shape, (std::vector<int64_t>{2, 3, 1, 2}));
  EXPECT_EQ(pixels.data<float>()[0], static_cast<float>('3'));
  EXPECT_EQ(pixels.data<float>()[6], static_cast<float>('4'));
  EXPECT_EQ(two.counts[Modality::kImage], 2u);
  EXPECT_GT(two.bytes_read, 2 * fake_picture(5, 5).size());
  const AssembledSample none = assembler->assemble(1);
  EXPECT_EQ(none.tokens, ids("<257>u:qa:no<258>"));
  EXPECT_TRUE(none.media.empty());
  // Two samples in one batch: the pictures of both, in order.
  const MicroBatch batch = join_samples({&two, &none, &two}, {0, 1, 0});
  EXPECT_EQ(batch.media.at("pixel_values").shape[0], 4);
  EXPECT_EQ(batch.media_positions.at("image").size(), 8u);
}

TEST_F(ConversationSampleTest, TheIndexTellsModalityCostAndMemory) {
  const auto data = write(TarBytes()
                              .file("a.json", R"({"image": ["png", "image1"], )" + turns("<image><image>äq", "yes") + "}")
                              .file("a.png", fake_picture(5, 5))
                              .file("a.image1", fake_picture(5, 5))
                              .file("b.json", "{" + turns("<image>", "x") + "}")
                              .file("c.json", R"({"video": ["mp4", "video1.mp4"], "audio": "ogg", )" + turns("<video><video><audio>", "x") + "}")
                              .file("c.mp4", "v").file("c.video1.mp4", "w").file("c.ogg", "s")
                              .file("d.txt", "a caption").file("d.json", "{" + turns("q", "a") + "}")
                              .file("e.json", "{" + std::string(100, ' ')));
  EXPECT_TRUE(data->has_conversations());
  const uint32_t flag = kSampleConversation;
  EXPECT_EQ(data->sample(0).flags & flag, flag);
  EXPECT_EQ(data->sample(0).text_bytes, 14u + 3 + 3);  // the text with its marks, and the answer
  EXPECT_EQ(data->sample(0).text_code_points, 14u + 2 + 3);
  EXPECT_EQ(data->sample(0).modalities, kHasText | kHasImage);
  EXPECT_EQ(data->sample(2).modalities, kHasText | kHasVideo | kHasAudio);
  EXPECT_EQ(data->sample(3).flags & flag, 0u);  // the caption counts
  EXPECT_EQ(data->sample(4).flags & flag, 0u);
  const auto assembler = with(data, 0, false, decoders());
  EXPECT_EQ(assembler->modality(0), Modality::kImage);
  EXPECT_EQ(assembler->modality(1), Modality::kText);
  EXPECT_EQ(assembler->modality(2), Modality::kVideo);
  EXPECT_EQ(assembler->cost(0).picture, 4);
  EXPECT_EQ(assembler->cost(2).picture, 18);
  EXPECT_GE(assembler->cost(4).text, 100);
  EXPECT_LE(with(data, 20, false, decoders())->cost(2).total(), 20);
  EXPECT_GE(assembler->decoded_bytes(0), 2 * 6 * sizeof(float));
  // A model without video: the sample is of what it takes.
  EXPECT_EQ(with(data)->modality(2), Modality::kText);
  EXPECT_EQ(assembler->assemble(3).tokens, ids("<257>a caption<258>"));
}

TEST_F(ConversationSampleTest, SeveralVideosAndSounds) {
  const TarBytes tar = TarBytes()
                           .file("a.json", R"({"video": ["mp4", "video1"], "audio": ["ogg", "audio1.wav"], )" + turns("<audio><video>-<audio><video>", "x") + "}")
                           .file("a.mp4", "123").file("a.video1", "45").file("a.ogg", "6").file("a.audio1.wav", "78");
  BufferPool pool(1 << 20);
  const auto assembler = with(tar, 0, false, decoders());
  AssembledSample sample = assembler->assemble(0, &pool);
  EXPECT_EQ(sample.tokens, ids("<257>u:<261><260><260><260>-<261><261><260><260>a:x<258>"));
  const HostTensor& video = sample.media.at("video");
  EXPECT_EQ(video.shape, (std::vector<int64_t>{5, 2}));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(video.data<float>()[2 * i], static_cast<float>("12345"[i]));
  EXPECT_EQ(sample.media_positions[Modality::kVideo], (std::vector<int64_t>{4, 5, 6, 10, 11}));
  EXPECT_EQ(sample.media.at("audio").shape[0], 3);
  EXPECT_EQ(sample.counts[Modality::kAudio], 2u);
  sample.give_back(pool);
  // Of a fixed number of positions: the same order.
  const AssembledSample fixed = with(tar, 0, false, decoders(true))->assemble(0);
  EXPECT_EQ(fixed.tokens, ids("<257>u:<261><261><260><260>-<261><261><260><260>a:x<258>"));
  EXPECT_EQ(fixed.media.at("video").shape[0], 5);
}

TEST_F(ConversationSampleTest, EverythingBrokenHasItsReasonAndNamesTheEntry) {
  struct Case {
    std::string json, reason, words;
    std::vector<std::pair<std::string, std::string>> media;
  };
  const std::string good = fake_picture(5, 5);
  const std::vector<Case> cases = {
      {"{" + turns("q", "a") + "}", "good", "", {}},
      {R"({"id": "k1", "image": "png", )" + turns("q", "a") + "}", "missing_media", "(id k1): the image 'png' has no <image>", {{"png", good}}},
      {R"({"id": "k2", )" + turns("<image>q", "a") + "}", "missing_media", "(id k2): turn 0 has a <image> for which there is no file", {}},
      {R"({"image": "png", )" + turns("<image>", "a") + "}", "missing_media", "there is no member for the image 'png'", {}},
      {R"({"image": ["png", "image1.png"], )" + turns("<image><image>", "a") + "}", "missing_media", "image1.png", {{"png", good}}},
      {"{" + turns("q", "a") + "}", "missing_media", "the member .png has no <image>", {{"png", good}}},
      {R"({"image": ["png", "image1.png"], )" + turns("<image><image>", "a") + "}", "decode_error", "its picture .image1.png", {{"png", good}, {"image1.png", "broken"}}},
      {R"({"image": "png", )" + turns("<image>", "a") + "}", "decode_error", "0 bytes", {{"png", ""}}},
      {R"({"conversations": []})", "bad_conversation", "no list of turns", {}},
      {R"({"conversations": [{"from": "nobody", "value": "x"}]})", "bad_conversation", "'nobody'", {}},
      {R"({"no": "turns"})", "bad_conversation", "neither", {}},
      {"{\"conversations\": [", "bad_json", "", {}},
      {std::string(200, '['), "bad_json", "", {}},
      {"", "bad_json", "", {}},
      {"{" + turns("\xff", "a") + "}", "bad_json", "", {}},
      {"{" + turns("says <bos> and <image>", "a") + "}", "missing_media", "<image>", {}},
      {"{" + turns("q", "") + "}", "good", "", {}},  // <eos> is learned
      {R"({"conversations": [{"from": "human", "value": "q"}]})", "no_label", "the assistant says nothing", {}},
      {R"({"messages": [{"role": "", "content": "q"}]})", "bad_conversation", "'role'", {}},
      {R"({"messages": [{"role": "user", "content": 7}]})", "bad_conversation", "content", {}},
      {R"({"video": "mp4", )" + turns("<video>", "a") + "}", "bad_conversation", "the model takes no video", {{"mp4", "v"}}},
      {R"({"messages": [{"role": 3}]})", "bad_conversation", "message 0", {}},
  };
  TarBytes tar;
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string key = "s" + std::to_string(i);
    tar.file(key + ".json", cases[i].json);
    for (const auto& [extension, content] : cases[i].media) tar.file(key + "." + extension, content);
  }
  const auto assembler = with(tar);
  for (size_t id = 0; id < cases.size(); ++id) {
    const std::string told = failure(*assembler, id);
    EXPECT_TRUE(told.starts_with(cases[id].reason + ": ")) << id << " " << told;
    EXPECT_NE(told.find(cases[id].words), std::string::npos) << id << " " << told;
  }
  // `verify` finds what needs no template, `stat` counts.
  std::map<uint64_t, std::string> faults;
  for (const SampleFault& fault : verify_dataset(assembler->dataset(), {.threads = 1})) faults.emplace(fault.id, fault.reason);
  for (size_t id = 0; id < cases.size(); ++id) {
    const std::string& reason = cases[id].reason;
    if (reason == "bad_json" || reason == "missing_media" || (reason == "bad_conversation" && id != 20)) {
      EXPECT_EQ(faults[id], reason) << id;
    }
  }
  EXPECT_FALSE(faults.contains(17));
  const DatasetStatistics statistics = dataset_statistics(assembler->dataset());
  EXPECT_EQ(statistics.conversations, 17u);
  EXPECT_NE(to_text(statistics).find("  conversations       17\n"), std::string::npos);
}

TEST_F(ConversationSampleTest, ATemplateThatRefusesOrDropsIsTemplateError) {
  const auto data = write(TarBytes().file("a.json", R"({"image": "png", )" + turns("<image>", "a") + "}").file("a.png", fake_picture(5, 5)));
  for (const char* source : {"{{ raise_exception('no') }}", "{{ messages[1].content }}", "{{ messages[0].content ~ messages[0].content }}"}) {
    AssemblerOptions options;
    options.image_token = kImage;
    options.conversations = encoder(0, false, source);
    const SampleAssembler assembler(data, load_tokenizer("bytes"), test::stub_decoder(2), options);
    EXPECT_TRUE(failure(assembler, 0).starts_with("template_error: s.tar: a (sample 0)")) << failure(assembler, 0);
  }
}

TEST_F(ConversationSampleTest, CutsTextAndWholeMediaOrDrops) {
  const TarBytes tar = TarBytes()
                           .file("a.json", R"({"image": ["png", "image1.png"], "conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "yes"},
                               {"from": "human", "value": "<image>"}, {"from": "gpt", "value": "no"}]})")
                           .file("a.png", fake_picture(5, 5, 1)).file("a.image1.png", fake_picture(5, 5, 2));
  const std::vector<int64_t> whole = ids("<257>u:<259><259>a:yes<258>u:<259><259>a:no<258>");
  for (int64_t limit = 1; limit <= static_cast<int64_t>(whole.size()) + 1; ++limit) {
    const bool fits = limit >= static_cast<int64_t>(whole.size());
    EXPECT_EQ(failure(*with(tar, limit, true), 0).substr(0, 9), fits ? "good: " : "too_long:");
    const auto assembler = with(tar, limit);
    if (limit < 8) {
      EXPECT_TRUE(failure(*assembler, 0).starts_with("too_long: s.tar: a")) << limit;
      continue;
    }
    const AssembledSample sample = assembler->assemble(0);
    const auto kept = static_cast<size_t>(limit == 14 ? 13 : std::min<int64_t>(limit, static_cast<int64_t>(whole.size())));
    EXPECT_EQ(sample.tokens, std::vector<int64_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(kept)));
    EXPECT_EQ(sample.cut, !fits);
    const int64_t pictures = kept >= 15 ? 2 : 1;
    EXPECT_EQ(sample.media.at("pixel_values").shape[0], pictures);
    EXPECT_EQ(sample.media_positions[Modality::kImage].size(), static_cast<size_t>(2 * pictures));
    EXPECT_EQ(sample.counts[Modality::kImage], static_cast<uint64_t>(pictures));
  }
  // Videos, whose length only decoding tells, are taken away just so.
  const TarBytes video = TarBytes().file("a.json", R"({"video": ["mp4", "video1"], )" + turns("<video>", "yes<video>") + "}").file("a.mp4", "12").file("a.video1", "345");
  const AssembledSample cut = with(video, 12, false, decoders())->assemble(0);
  EXPECT_EQ(cut.tokens, ids("<257>u:<260><260>a:yes"));
  EXPECT_EQ(cut.media.at("video").shape[0], 2);
  EXPECT_EQ(cut.counts[Modality::kVideo], 1u);
  // Captions follow the same rule.
  const TarBytes caption = TarBytes().file("a.txt", "abcdef");
  EXPECT_EQ(with(caption, 4)->assemble(0).tokens, ids("<257>abc"));
  EXPECT_TRUE(failure(*with(caption, 4, true), 0).starts_with("too_long: 8 positions"));
}

TEST_F(ConversationSampleTest, ShardsOfOthersAreReadByTheOrderOfTheirMembers) {
  const auto assembler = with(TarBytes()
                                  .file("a.jpg", fake_picture(5, 5, 1)).file("a.json", R"({"image": "coco/train/0001.JPG", )" + turns("<image>", "x") + "}")
                                  .file("b.jpg", fake_picture(5, 5, 1)).file("b.json", R"({"image": ["x/1.jpg", "x/2.png"], )" + turns("<image><image>", "x") + "}")
                                  .file("b.png", fake_picture(5, 5, 2))
                                  .file("c.jpg", fake_picture(5, 5, 1)).file("c.json", R"({"image": ["x/1.jpg", "x/2.png"], )" + turns("<image><image>", "x") + "}")
                                  .file("d.jpg", fake_picture(5, 5, 1)).file("d.json", R"({"image": ["JPG", "x/2.png"], )" + turns("<image><image>", "x") + "}")
                                  .file("d.png", fake_picture(5, 5, 1)));
  EXPECT_EQ(assembler->assemble(0).media.at("pixel_values").data<float>()[0], static_cast<float>('1'));
  EXPECT_EQ(assembler->assemble(1).media.at("pixel_values").data<float>()[6], static_cast<float>('2'));
  EXPECT_TRUE(failure(*assembler, 2).starts_with("missing_media: ")) << "one member for two files";
  EXPECT_TRUE(failure(*assembler, 3).starts_with("missing_media: ")) << "one of two is named";
}

TEST_F(ConversationSampleTest, WithoutAChatTemplateTheDataIsRefusedByKey) {
  const auto data = write(TarBytes().file("a.json", "{" + turns("q", "a") + "}"));
  AssemblerOptions options;
  options.image_token = kImage;
  options.no_conversations = "data.chat_template: auto: the folder has none";
  auto make = [&](std::shared_ptr<const Dataset> from) { return SampleAssembler(from, load_tokenizer("bytes"), test::stub_decoder(), options); };
  try {
    make(data);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    EXPECT_NE(std::string(error.what()).find("data.chat_template: auto"), std::string::npos);
  }
  // An image token that the tokenizer does not write.
  options.conversations = encoder(0, false);
  options.image_token = 400;
  EXPECT_THROW(make(data), Error);
  // A caption elsewhere in the .json is asked for by name: these are no conversations then.
  options.conversations = nullptr;
  options.image_token = kImage;
  options.caption = "/conversations/1/value";
  EXPECT_EQ(make(data).assemble(0).tokens, ids("<257>a<258>"));
  // Data without conversations needs none.
  options.caption = "txt";
  EXPECT_EQ(failure(make(write(TarBytes().file("a.json", "{}").file("b.txt", "x"))), 0).substr(0, 10), "no_caption");
}

TEST_F(ConversationSampleTest, AnyNumberOfRanksTrainsOnTheSameAndNamesTheSame) {
  TarBytes tar;
  for (int i = 0; i < 40; ++i) {
    const std::string key = "s" + std::to_string(i);
    if (i % 10 == 7) {
      tar.file(key + ".json", R"({"conversations": 7})");
    } else if (i % 10 == 8) {
      tar.file(key + ".json", R"({"image": "png", )" + turns("<image>", "a") + "}");
    } else if (i % 4 == 0) {
      tar.file(key + ".json", "{" + turns("question " + key, "answer") + "}");
    } else {
      std::string marks, files;
      for (int k = 0; k < i % 4; ++k) {
        const std::string name = k == 0 ? "png" : "image" + std::to_string(k) + ".png";
        files += (k ? ", \"" : "\"") + name + "\"";
        marks += "<image>\\n";
        tar.file(key + "." + name, i == 35 && k == 1 ? "broken" : fake_picture(9, 9, k));
      }
      tar.file(key + ".json", "{\"image\": [" + files + "], " + turns(marks + key, "yes") + "}");
    }
  }
  const auto assembler = with(tar);
  // Per step: ids of the samples trained on, and ledger lines.
  auto run = [&](int ranks) {
    std::vector<std::unique_ptr<DataLoader>> loaders;
    for (int rank = 0; rank < ranks; ++rank) {
      DataLoaderOptions options;
      options.seed = 3;
      options.batch_samples = 8;
      options.rank = rank;
      options.ranks = ranks;
      options.threads = 2;
      options.micro_batch.positions = 64;
      loaders.push_back(std::make_unique<DataLoader>(assembler, options));
      loaders.back()->start(0);
    }
    std::vector<std::string> steps;
    std::vector<std::string> ledger;
    for (int step = 0; step < 12; ++step) {
      std::vector<uint8_t> codes;
      for (auto& loader : loaders) {
        const auto own = loader->open();
        codes.resize(own.size());
        for (size_t i = 0; i < own.size(); ++i) codes[i] |= own[i];
      }
      std::string line;
      int64_t labels = 0;
      for (auto& loader : loaders) {
        EXPECT_FALSE(loader->decide(codes));
        const SettledStep settled = loader->settle();
        line.clear();
        for (uint64_t id : settled.trained_ids()) line += std::to_string(id) + " ";
        RankBatch batch = loader->take();
        for (const MicroBatch& micro : batch.micro_batches) labels += micro.label_count();
        for (const LedgerEntry& entry : loader->ledger_entries(settled, batch.bad_samples))
          if (!entry.detail.empty()) ledger.push_back(to_json_line(entry));
      }
      steps.push_back(line + "labels " + std::to_string(labels));
    }
    std::sort(ledger.begin(), ledger.end());
    return std::pair(steps, ledger);
  };
  const auto one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(3), one);
  std::map<std::string, int> reasons;
  for (const std::string& line : one.second) ++reasons[ledger_entry_from_json(line, "line").reason];
  EXPECT_GT(reasons["bad_conversation"], 0);
  EXPECT_GT(reasons["missing_media"], 0);
  EXPECT_GT(reasons["decode_error"], 0);
}

}  // namespace
}  // namespace mso
