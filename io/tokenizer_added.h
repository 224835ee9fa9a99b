// Added tokens: strings that are cut out of a text before anything else and become one id each.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mso {

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left (right) with it
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalised text, as `normalized_content`
  bool special = false;     // left out by decode(…, skip_special)
  std::string normalized_content;
};

class AddedTokens {
 public:
  // A piece of a text: an added token's id, or the text between two.
  struct Segment {
    int64_t id;  // -1: text
    std::string_view text;  // what it covers, stripped white space included
  };

  // Throws std::invalid_argument for two tokens that are looked for as the same string.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Appends the segments of a text, the leftmost and of those the longest token each time (as tokenizer/
  // added_vocabulary.rs); `normalized`: which of the two kinds to look for. Text segments are not empty.
  void split(std::string_view text, bool normalized, std::vector<Segment>& segments) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool any(bool normalized) const { return !sets_[normalized].strings.empty(); }

 private:
  struct Set {
    std::vector<std::pair<std::string, size_t>> strings;  // sorted; index into tokens_
    std::bitset<256> first_bytes;
  };
  static const std::pair<std::string, size_t>* longest_at(const Set& set, std::string_view text);
  std::vector<AddedToken> tokens_;
  Set sets_[2];
};

}  // namespace mso
