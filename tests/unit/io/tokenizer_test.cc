// The expected ids were made with the `tokenizers` package.
#include "io/tokenizer.h"

#include <gtest/gtest.h>

namespace mso {
namespace {

using Ids = std::vector<int64_t>;

TEST(ByteTokenizer, BytesAndSpecialTokens) {
  auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("A<image>é\n"), (Ids{65, 259, 0xc3, 0xa9, 10}));
  EXPECT_EQ(tokenizer->encode("<<pad><eos", true), (Ids{257, '<', 256, '<', 'e', 'o', 's'}));
  EXPECT_EQ(tokenizer->encode("", true), (Ids{257}));
  EXPECT_EQ(tokenizer->vocabulary_size(), 264);
  EXPECT_EQ(tokenizer->token_id("<image>"), 259);
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

}  // namespace
}  // namespace mso
