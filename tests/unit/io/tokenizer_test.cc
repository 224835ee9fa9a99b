// Tokenizers against what the `tokenizers` package gives (fixtures/tokenizer, made by
// tests/reference/tokenizer_reference.py --fixtures), special tokens from the files beside, and big texts.
#include "io/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace mso {
namespace {

using Ids = std::vector<int64_t>;
namespace fs = std::filesystem;

fs::path fixture(const std::string& name) {
  const char* directory = std::getenv("MSO_SRCDIR");
  if (!directory) directory = std::getenv("srcdir");
  return fs::path(directory ? directory : ".") / "tests/unit/io/fixtures/tokenizer" / name;
}

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "mso-tokenizer-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(ByteTokenizer, BytesAndSpecialTokens) {
  auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("A<image>é\n"), (Ids{65, 259, 0xc3, 0xa9, 10}));
  EXPECT_EQ(tokenizer->encode("<<pad><eos", true), (Ids{257, '<', 256, '<', 'e', 'o', 's'}));
  EXPECT_EQ(tokenizer->encode("", true), (Ids{257}));
  EXPECT_EQ(tokenizer->vocabulary_size(), 264);
  EXPECT_EQ(tokenizer->token_id("<image>"), 259);
  EXPECT_EQ(tokenizer->token_id("<video>"), 260);
  EXPECT_EQ(tokenizer->token_id("<audio>"), 261);
  EXPECT_EQ(tokenizer->encode("<video>b<audio>"), (Ids{260, 98, 261}));
  EXPECT_EQ(tokenizer->token_id("\u0120"), 32);
  EXPECT_EQ(tokenizer->token_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->bos_id(), 257);
  EXPECT_EQ(tokenizer->eos_id(), 258);
  EXPECT_EQ(tokenizer->pad_id(), 256);
}

TEST(ByteTokenizer, IllFormedTextBecomesReplacementCharacters) {
  auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("a\xff"), (Ids{'a', 0xef, 0xbf, 0xbd}));
  EXPECT_EQ(tokenizer->decode(Ids{0xe2, 0x82, 'x'}), "\uFFFDx");
}

TEST(ByteTokenizer, DecodesBackAndSkipsWhatHasNoToken) {
  auto tokenizer = load_tokenizer("bytes");
  std::string text = "Ein Bär\r\n\t\U0001F43B";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true), true), text);
  EXPECT_EQ(tokenizer->decode(Ids{257, 'a', 259, 264, -1}), "<bos>a<image>");
}

TEST(ByteTokenizer, TextsMakeAnEqualTokenizer) {
  auto tokenizer = load_tokenizer("bytes");
  auto again = parse_tokenizer(tokenizer->source_text(), tokenizer->config_text(), "again");
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(again->encode("x<eos>", true), tokenizer->encode("x<eos>", true));
  EXPECT_EQ(again->bos_id(), tokenizer->bos_id());
}

class Fixture : public testing::TestWithParam<const char*> {};

TEST_P(Fixture, GivesTheIdsAndTextsOfTheTokenizersPackage) {
  const auto expected = nlohmann::json::parse(read_file(fixture("expected.json"))).at(GetParam());
  auto tokenizer = load_tokenizer(fixture(GetParam() + std::string(".json")));
  ASSERT_GE(expected.size(), 30u);
  for (const auto& wanted : expected) {
    SCOPED_TRACE(wanted.dump());
    Ids ids = tokenizer->encode(wanted["text"].get<std::string>(), true);
    EXPECT_EQ(ids, wanted["ids"].get<Ids>());
    EXPECT_EQ(tokenizer->decode(ids), wanted["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), wanted["plain"].get<std::string>());
  }
}

TEST_P(Fixture, IsTheSameFromSeveralThreads) {
  const auto expected = nlohmann::json::parse(read_file(fixture("expected.json"))).at(GetParam());
  auto tokenizer = load_tokenizer(fixture(GetParam() + std::string(".json")));
  auto other =
      load_tokenizer("bytes");  // its words must not be mixed up with the first one's in a thread's cache
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round)
        for (const auto& wanted : expected) {
          std::string text = wanted["text"];
          other->encode(text);
          wrong[i] += tokenizer->encode(text, true) != wanted["ids"].get<Ids>();
        }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST_P(Fixture, TakesAMegabyteOfOneLetterOrOfSpaces) {
  auto tokenizer = load_tokenizer(fixture(GetParam() + std::string(".json")));
  for (std::string piece : {"e", " ", "1", "\n", "the ", "\u4e2d"}) {
    std::string text = "x";
    while (text.size() < (piece.size() > 1 ? 1u << 16 : 1u << 20)) text += piece;
    Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids).size(), text.size()) << "'" << piece << "'";
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, Fixture,
                         testing::Values("gpt2", "llama3", "qwen2", "llama2", "metaspace_first"));

TEST(Tokenizer, SpansCoverTheText) {
  for (const char* name : {"gpt2.json", "llama2.json", "llama3.json", "metaspace_first.json", "qwen2.json"}) {
    auto tokenizer = load_tokenizer(fixture(name));
    for (const std::string text : {"", " ", "The 12345 dogs\u2026 e\u0301clair \u00e9clair \U0001f43b", "<image>\nA <tool>s [STRIP]  word  <image>", "a\n\n  b\u4e2d\u6587 ",
                                   "\u2581x\u2581\u2581 y"}) {
      std::vector<TokenSpan> spans;
      const Ids ids = tokenizer->encode_with_spans(text, spans);
      EXPECT_EQ(ids, tokenizer->encode(text)) << name << ": " << text;
      ASSERT_EQ(spans.size(), ids.size());
      size_t start = 0, covered = 0;
      for (const TokenSpan& span : spans) {
        EXPECT_LE(span.start, span.end);
        EXPECT_LE(span.end, text.size());
        EXPECT_GE(span.end, start) << name << ": " << text;  // in order; those of one character may share it
        start = span.start;
        covered = std::max(covered, span.end);
      }
      if (std::string(name) != "gpt2.json") {
        EXPECT_EQ(covered, text.size()) << name << ": " << text;
      }
    }
  }
  std::vector<TokenSpan> spans;
  load_tokenizer("bytes")->encode_with_spans("\u00e9<image>a", spans);
  EXPECT_EQ(spans, (std::vector<TokenSpan>{{0, 2}, {0, 2}, {2, 9}, {9, 10}}));
}

TEST(Tokenizer, ReadsSentencePieceModels) {
  const std::string model = read_file(fixture("sentencepiece.model"));
  for (const auto& part : nlohmann::json::parse(read_file(fixture("sentencepiece.json")))) {
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = parse_tokenizer(model, part["config"].dump(), "sp");
    } catch (const Error& error) {
      if (std::string(error.what()).find("this build reads no") != std::string::npos) GTEST_SKIP() << error.what();
      throw;
    }
    auto again = parse_tokenizer(tokenizer->source_text(), tokenizer->config_text(), "checkpoint");
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
    EXPECT_NO_THROW(nlohmann::json::parse(tokenizer->source_text()));
    for (const auto& item : part["cases"]) {
      const std::string text = item["text"];
      EXPECT_EQ(tokenizer->encode(text, true), item["ids"].get<Ids>()) << text;
      EXPECT_EQ(again->encode(text, true), item["ids"].get<Ids>()) << text;
      std::vector<TokenSpan> spans;
      EXPECT_EQ(tokenizer->encode_with_spans(text, spans), tokenizer->encode(text)) << text;
      for (size_t i = 0; i < spans.size(); ++i) {
        EXPECT_LE(spans[i].start, spans[i].end);
        EXPECT_LE(spans[i].end, text.size());
        if (i > 0) {
          EXPECT_GE(spans[i].start, spans[i - 1].start);
        }
      }
    }
    EXPECT_EQ(tokenizer->bos_id(), 1);
    EXPECT_EQ(tokenizer->token(1), "<s>");
    EXPECT_TRUE(tokenizer->is_special(*tokenizer->token_id("<image>")));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("Hello world", true), true), "Hello world");
  }
  Folder folder;
  folder.write("tokenizer.model", model);
  folder.write("added_tokens.json", R"({"<image>": 420})");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("<image>"), (Ids{420}));
  std::string damaged = model;
  damaged.resize(100);
  EXPECT_THROW(parse_tokenizer(damaged, "", "sp"), Error);
  EXPECT_THROW(parse_tokenizer(model, "[]", "sp"), Error);
  EXPECT_THROW(parse_tokenizer(model, R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "sp"), Error);
  EXPECT_THROW(parse_tokenizer(R"({"sentencepiece_model": "AA*A"})", "", "sp"), Error);
}

TEST(Tokenizer, ReadsClipsFiles) {
  Folder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "a</w>": 2, "b</w>": 3, "ab</w>": 4, "!": 5, "!</w>": 6, "<|startoftext|>": 7, "<|endoftext|>": 8})");
  folder.write("merges.txt", "#version: 0.2\na b</w>\nq q\n");
  auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("AB \n b!", true), (Ids{7, 4, 3, 6, 8}));
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>ba"), (Ids{2, 8, 1, 2}));
  std::vector<TokenSpan> spans;
  tokenizer->encode_with_spans("AB \n ba!", spans);
  EXPECT_EQ(spans, (std::vector<TokenSpan>{{0, 2}, {5, 6}, {6, 7}, {7, 8}}));
  folder.write("vocab.json", R"({"a": 0})");
  EXPECT_THROW(load_tokenizer(folder.path()), Error);
}

TEST(Tokenizer, IllFormedTextIsRepaired) {
  auto tokenizer = load_tokenizer(fixture("llama2.json"));
  EXPECT_EQ(tokenizer->encode("x\xf0\x9f\x90y"), tokenizer->encode("x\uFFFDy"));
  EXPECT_EQ(tokenizer->encode("\xed\xa0\x80"), tokenizer->encode("\uFFFD\uFFFD\uFFFD"));
}

TEST(Tokenizer, SpecialTokensComeFromTheFilesBeside) {
  Folder folder;
  folder.write("tokenizer.json", read_file(fixture("llama2.json")));
  auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->token(1), "<s>");
  EXPECT_EQ(tokenizer->token(999999), std::nullopt);

  folder.write("config.json", R"({"bos_token_id": 2, "eos_token_id": [2, 1], "pad_token_id": 999999})");
  tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);

  folder.write("special_tokens_map.json",
               R"({"bos_token": {"content": "<s>", "lstrip": false}, "pad_token": "<unk>"})");
  tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), 0);
  // The texts alone say the same.
  auto again = parse_tokenizer(tokenizer->source_text(), tokenizer->config_text(), "checkpoint");
  EXPECT_EQ(again->bos_id(), 1);
  EXPECT_EQ(again->eos_id(), 2);
  EXPECT_EQ(again->pad_id(), 0);
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());

  const std::string config =
      R"({"bos_token": "</s>", "eos_token": null, "pad_token": {"content": "<image>"}, "x": 1})";
  folder.write("tokenizer_config.json", config);
  std::string before = tokenizer->fingerprint();
  tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->pad_id(), tokenizer->token_id("<image>"));
  EXPECT_NE(tokenizer->fingerprint(), before);
  EXPECT_EQ(nlohmann::json::parse(tokenizer->config_text())["x"], 1);
}

TEST(Tokenizer, MissingOrDamagedFilesAreNamed) {
  Folder folder;
  try {
    load_tokenizer(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.on().find(folder.path() + "/tokenizer.json"), std::string::npos) << error.what();
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
  }
  std::string text = read_file(fixture("gpt2.json"));
  folder.write("tokenizer.json", text.substr(0, text.size() / 2));
  EXPECT_THROW(load_tokenizer(folder.path()), Error);
  folder.write("tokenizer.json", "");
  EXPECT_THROW(load_tokenizer(folder.path()), Error);
  folder.write("tokenizer.json", text);
  folder.write("tokenizer_config.json", "{");
  EXPECT_THROW(load_tokenizer(folder.path()), Error);
}

}  // namespace
}  // namespace mso
