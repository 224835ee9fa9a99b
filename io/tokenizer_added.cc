#include "io/tokenizer_added.h"

#include <algorithm>
#include <stdexcept>

#include "io/utf8.h"

namespace mso {

namespace {
// Start of the last character of a valid, non-empty text.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = last_character(text);
  return is_word_character(next_code_point(text, at));
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word_character(next_code_point(text, at));
}

size_t without_space_at_end(std::string_view text) {
  while (!text.empty()) {
    size_t start = last_character(text), at = start;
    if (!is_white_space(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text.size();
}

size_t space_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_white_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}
}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const std::string& wanted = token.normalized ? token.normalized_content : token.content;
    if (wanted.empty())
      throw std::invalid_argument("the token '" + token.content + "' is looked for as an empty string");
    Set& set = sets_[token.normalized];
    set.strings.emplace_back(wanted, i);
    set.first_bytes.set(static_cast<unsigned char>(wanted[0]));
  }
  for (Set& set : sets_) {
    std::sort(set.strings.begin(), set.strings.end());
    for (size_t i = 1; i < set.strings.size(); ++i)
      if (set.strings[i].first == set.strings[i - 1].first)
        throw std::invalid_argument("two added tokens are looked for as '" + set.strings[i].first + "'");
  }
}

// Narrows the range of strings that agree with the text byte by byte.
const std::pair<std::string, size_t>* AddedTokens::longest_at(const Set& set, std::string_view text) {
  const std::pair<std::string, size_t>* found = nullptr;
  auto low = set.strings.begin(), high = set.strings.end();
  for (size_t length = 0; low != high; ++length) {
    if (low->first.size() == length) found = &*low++;  // the shortest sorts first
    if (length == text.size()) break;
    auto byte = [length](const auto& entry) { return static_cast<unsigned char>(entry.first[length]); };
    auto wanted = static_cast<unsigned char>(text[length]);
    low = std::lower_bound(low, high, wanted,
                           [&](const auto& entry, unsigned char b) { return byte(entry) < b; });
    high = std::upper_bound(low, high, wanted,
                            [&](unsigned char b, const auto& entry) { return b < byte(entry); });
  }
  return found;
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Segment>& segments) const {
  const Set& set = sets_[normalized];
  size_t done = 0;  // behind the last token
  for (size_t at = 0; !set.strings.empty() && at < text.size();) {
    const std::pair<std::string, size_t>* found =
        set.first_bytes[static_cast<unsigned char>(text[at])] ? longest_at(set, text.substr(at)) : nullptr;
    if (!found) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found->second];
    size_t start = at, stop = at + found->first.size();
    at = stop;  // also when the token is refused below: no shorter one is tried at this place
    if (token.single_word && (ends_with_word(text.substr(0, start)) || starts_with_word(text.substr(stop))))
      continue;
    if (token.lstrip) start = std::max(without_space_at_end(text.substr(0, start)), done);
    if (token.rstrip) stop += space_at_start(text.substr(stop));
    if (done < start) segments.push_back({-1, text.substr(done, start - done)});
    segments.push_back({token.id, text.substr(start, stop - start)});
    done = stop;
  }
  if (done < text.size()) segments.push_back({-1, text.substr(done)});
}

}  // namespace mso
