// What tokenizer.json may hold: refusals with the JSON path, added tokens, splitting behaviours, hostile
// patterns. Expected ids are those of the `tokenizers` package.
#include "io/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/tokenizer.h"
#include "io/tokenizer_pattern.h"

namespace mso {
namespace {

using Ids = std::vector<int64_t>;
using nlohmann::json;

std::unique_ptr<Tokenizer> parse(const json& root) {
  return parse_tokenizer(root.dump(), "", "t.json");
}

// Letters a–e are ids 1–5, <unk> 0, then the merges ab, abc, de.
json small() {
  return json::parse(
      R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "ab": 6,
      "abc": 7, "de": 8}, "merges": [["a", "b"], ["ab", "c"], ["d", "e"]]}})");
}

json with_pattern(const std::string& pattern, const std::string& behavior = "Isolated", bool invert = false) {
  json root = small();
  root["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
  root["model"]["fuse_unk"] = true;
  return root;
}

std::string refusal(const json& root) {
  try {
    parse(root);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadUsage);
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerJson, RefusesWhatItDoesNotKnowAndSaysWhere) {
  struct Case {
    const char *pointer, *value, *expected;
  };
  const Case cases[] = {
      {"/model/type", R"("Unigram")", "/model/type"},
      {"/model/dropout", "0.1", "/model/dropout"},
      {"/model/end_of_word_suffix", "5", "/model/end_of_word_suffix"},
      {"/model/continuing_subword_prefix", R"("##")", "/model/continuing_subword_prefix"},
      {"/model/vocab", "[]", "/model/vocab"},
      {"/model/vocab/a", "-1", "/model/vocab/a"},
      {"/model/vocab/a", "4000000000", "/model/vocab/a"},
      {"/model/vocab/a", "2", "two tokens have the id 2"},
      {"/model/vocab/a", R"("1")", "/model/vocab/a"},
      {"/model/merges", "{}", "/model/merges"},
      {"/model/merges/1", R"(["ab"])", "/model/merges/1"},
      {"/model/merges/1", R"("ab")", "/model/merges/1"},
      {"/model/merges/1", R"(["ab", 3])", "/model/merges/1/1"},
      {"/model/merges/1", R"(["ab", "e"])", "'abe' is not in the vocabulary"},
      {"/model/byte_fallback", R"("yes")", "/model/byte_fallback"},
      {"/model", "null", "/model"},
      {"/normalizer", R"({"type": "BertNormalizer"})", "/normalizer/type"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
       "/normalizer/normalizers/1/type"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})",
       "/normalizer/pattern/Regex"},
      {"/normalizer", R"([])", "/normalizer"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "/pre_tokenizer/type"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {}, "behavior": "Isolated"})",
       "/pre_tokenizer/pattern"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Other"})",
       "/pre_tokenizer/behavior"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "/pre_tokenizer/replacement"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "x"})",
       "/pre_tokenizer/prepend_scheme"},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})",
       "/pre_tokenizer/pretokenizers/1"},
      {"/post_processor", R"({"type": "Other"})", "/post_processor/type"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})",
       "/post_processor/single"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}})",
       "/post_processor/special_tokens"},
      {"/post_processor", R"({"type": "RobertaProcessing", "cls": ["<s>"], "sep": ["</s>", 2]})",
       "/post_processor/cls"},
      {"/decoder", R"({"type": "WordPiece"})", "/decoder/type"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "/decoder/start"},
      {"/added_tokens", R"([{"content": "x"}])", "/added_tokens/0"},
      {"/added_tokens", R"([{"id": 9, "content": 7}])", "/added_tokens/0/content"},
  };
  for (const Case& c : cases) {
    json root = small();
    root[json::json_pointer(c.pointer)] = json::parse(c.value);
    EXPECT_NE(refusal(root).find(c.expected), std::string::npos)
        << c.pointer << " " << c.value << ": " << refusal(root);
  }
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  json root = small();
  root["normalizer"] = deep;
  EXPECT_NE(refusal(root).find("too deeply"), std::string::npos);
  // As text, and so deep that a walk over its tree would end the stack.
  std::string endless = small().dump();
  endless.insert(1, "\"normalizer\": " + std::string(1000000, '[') + std::string(1000000, ']') + ", ");
  try {
    make_json_tokenizer(endless, "t.json", [](const Tokenizer&) { return std::string("{}"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nested"), std::string::npos) << error.what();
  }
}

TEST(TokenizerJson, UnknownCharacters) {
  json root = small();
  EXPECT_EQ(parse(root)->encode("abcxxde"), (Ids{7, 0, 0, 8}));
  root["model"]["fuse_unk"] = true;
  EXPECT_EQ(parse(root)->encode("abcxxde"), (Ids{7, 0, 8}));
  root["model"]["unk_token"] = nullptr;
  EXPECT_EQ(parse(root)->encode("abcxxde"), (Ids{7, 8}));
  root["model"]["unk_token"] = "<none>";
  EXPECT_EQ(parse(root)->encode("abc"), (Ids{7}));
  EXPECT_THROW(parse(root)->encode("x"), Error);
}

TEST(TokenizerJson, ByteFallbackNeedsAllBytesOfTheCharacter) {
  json root = small();
  root["model"]["byte_fallback"] = true;
  root["model"]["vocab"]["<0xC3>"] = 9;
  root["model"]["vocab"]["<0xA9>"] = 10;
  root["decoder"] = {{"type", "ByteFallback"}};
  auto tokenizer = parse(root);
  EXPECT_EQ(tokenizer->encode("a\u00e9\u00e8"), (Ids{1, 9, 10, 0}));
  EXPECT_EQ(tokenizer->decode(Ids{9, 10, 1, 10, 9}),
            "\u00e9"
            "a\uFFFD\uFFFD");
}

TEST(TokenizerJson, IgnoreMergesTakesWholeWords) {
  json root = small();
  root["model"]["vocab"]["ae"] = 9;
  EXPECT_EQ(parse(root)->encode("ae"), (Ids{1, 5}));
  root["model"]["ignore_merges"] = true;
  EXPECT_EQ(parse(root)->encode("ae"), (Ids{9}));
}

TEST(TokenizerJson, AddedTokensOutsideTheVocabularyAreNumberedOn) {
  json root = small();
  root["added_tokens"] = json::parse(R"([{"id": 9, "content": "<x>", "special": true, "normalized": false},
      {"id": 10, "content": "<x>y", "special": false, "normalized": false, "single_word": true},
      {"id": 3, "content": "c", "special": false, "normalized": false}])");
  auto tokenizer = parse(root);
  EXPECT_EQ(tokenizer->vocabulary_size(), 11);
  EXPECT_EQ(tokenizer->encode("<x><x>y<x>"), (Ids{9, 10, 9}));
  EXPECT_EQ(tokenizer->encode("<x>ya"),
            (Ids{0, 0, 0, 0, 1}));  // refused as part of a word; <x> is not tried then
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{6, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{9, 3, 10}, true), "c<x>y");
}

// "ab1 2cd" cut at [0-9] in every way; <unk> stands for the digits and the space.
TEST(TokenizerJson, SplitBehaviours) {
  auto words = [](const char* behavior, bool invert) {
    return parse(with_pattern("[12]+", behavior, invert))->encode("ab1122 2cde");
  };
  EXPECT_EQ(words("Isolated", false), (Ids{6, 0, 0, 0, 3, 8}));
  EXPECT_EQ(words("Removed", false), (Ids{6, 0, 3, 8}));
  EXPECT_EQ(words("Removed", true), (Ids{0, 0}));
  EXPECT_EQ(words("MergedWithPrevious", false), (Ids{6, 0, 0, 3, 8}));
  EXPECT_EQ(words("MergedWithNext", false), (Ids{6, 0, 0, 3, 8}));
  EXPECT_EQ(words("Contiguous", false), (Ids{6, 0, 0, 0, 3, 8}));
}

TEST(TokenizerJson, EmptyMatchesOnlyCut) {
  EXPECT_EQ(parse(with_pattern("x*"))->encode("ab"), (Ids{1, 2}));
  EXPECT_EQ(parse(with_pattern("(?=b)"))->encode("abab"), (Ids{1, 2, 1, 2}));
}

TEST(TokenizerJson, HostilePatternsEndInAnError) {
  auto tokenizer = parse(with_pattern("(a+)+$b|(x+x+)+y"));
  try {
    tokenizer->encode(std::string(200, 'a') + "!");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
    EXPECT_NE(std::string(error.what()).find("limit"), std::string::npos) << error.what();
  }
  EXPECT_NE(refusal(with_pattern(std::string(100000, 'a'))).find("/pre_tokenizer/pattern/Regex"),
            std::string::npos);
  EXPECT_NE(refusal(with_pattern(std::string(1000, '(') + std::string(1000, ')'))), "accepted");
  EXPECT_NE(refusal(with_pattern("(?:(?:a{60000}){60000}){60000}")), "accepted");
  json root = small();
  json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  root["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", json::array({twice, twice, twice, twice, twice})}};
  EXPECT_THROW(parse(root)->encode("a"), Error);
}

TEST(TranslatePattern, SpellsOutWhatDiffers) {
  EXPECT_EQ(translate_pattern(R"(\d\D\v)"), R"([\p{Nd}][\P{Nd}]\x{b})");
  EXPECT_EQ(translate_pattern(R"(\p{L}\p{^Lu}\P{^N}\p{Han})"), R"(\p{L}\P{Lu}\p{N}\p{sc:Han})");
  EXPECT_EQ(translate_pattern(R"(\u00e9\x{1F600}\x41)"), R"(\x{00e9}\x{1F600}\x{41})");
  EXPECT_EQ(translate_pattern("a{,3}b{2,}{x}"), "a{0,3}b{2,}\\{x}");
  EXPECT_EQ(translate_pattern(R"([^\r\n\-a-z]?+x++)"), R"([^\r\n\-a-z]?+x++)");
  EXPECT_EQ(translate_pattern("(?i:x)(?=y)(?!z)(?>w)(v)"), "(?i:x)(?=y)(?!z)(?>w)(v)");
}

TEST(TranslatePattern, RefusesWhatWouldMeanSomethingElse) {
  for (const char* pattern :
       {R"(\b)",     R"(\A)",     R"(\1)",   R"(\k<n>)",      R"(\g<n>)", R"(\R)",  R"(\X)",
        R"([a[b]])", R"([a&&b])", "[",       "[]a]",          "a(?i)b",   "(?m)a",  "(?<n>a)",
        "(?#c)",     "(*FAIL)",   "a{2}+",   "a{1,2}+",       "a{2}?",    R"(\p{)", R"(\p{L&})",
        R"([\W])",   "\\",        R"(\xff)", "\\x{110000000}"})
    EXPECT_THROW(translate_pattern(pattern), std::invalid_argument) << pattern;
}

TEST(TextPattern, WhiteSpaceIsUnicodesWhiteSpace) {
  TextPattern space = TextPattern::regex(R"(\s+)"), other = TextPattern::regex(R"([^\S]+)");
  for (const auto* pattern : {&space, &other}) {
    std::vector<TextSpan> spans;
    pattern->find("a\u180e\u3000\u200b", spans);
    ASSERT_GE(spans.size(), 3u);
    EXPECT_EQ(spans[0].end, 4u);  // U+180E is none
    EXPECT_TRUE(spans[1].match);
    EXPECT_EQ(spans[1].end, 7u);
  }
}

}  // namespace
}  // namespace mso
