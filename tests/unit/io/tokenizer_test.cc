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
