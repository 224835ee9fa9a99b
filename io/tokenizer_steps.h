// What happens to a text between the added tokens and the BPE model: normalisers change it, pre-tokenizers
// cut it into words.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_node.h"
#include "io/tokenizer_pattern.h"

namespace mso {

struct TextRange {
  size_t start, end;
};

// For each byte of a changed text, the bytes [start, end) of the original it stands for.
using TextOrigin = std::vector<TextRange>;

class TextNormalizer {
 public:
  TextNormalizer() = default;  // leaves texts as they are
  explicit TextNormalizer(
      const JsonNode& node);  // "normalizer" of tokenizer.json; Error naming what is not supported
  // `text` itself or a view of `storage`. Valid UTF-8 in, valid UTF-8 out.
  std::string_view apply(std::string_view text, std::string& storage) const;
  // The same; `origin` must come with one range per byte of `text` and leaves with one per byte of the result. Letters
  // that NFC and its like put together or take apart stand for all of their cluster.
  std::string_view apply(std::string_view text, std::string& storage, TextOrigin& origin) const;

 private:
  struct Step {
    enum Kind { kNfc, kNfd, kNfkc, kNfkd, kPrepend, kReplace, kLowercase, kStrip } kind;
    std::string text;  // prepended, or put in place
    TextPattern pattern = TextPattern::literal("");
    bool left = false, right = false;  // kStrip
  };
  void add(const JsonNode& node, int depth);
  // What one step makes of a text; nothing where it stays as it is.
  static std::optional<std::string> changed(const Step& step, std::string_view text);
  static TextOrigin origin_after(const Step& step, std::string_view before, std::string_view after, const TextOrigin& origin);
  std::vector<Step> steps_;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // one word
  explicit PreTokenizer(const JsonNode& node);

  // Whether words go to the model as bytes, which the vocabulary writes in GPT-2's letters.
  bool byte_level() const { return byte_level_; }

  // Appends the words of a text, views of it or of strings in `storage`. `at_start`: the text begins where
  // the whole input began (Metaspace's prepend_scheme "first").
  void split(std::string_view text, bool at_start, std::vector<std::string_view>& words,
             std::deque<std::string>& storage) const {
    split(text, at_start, words, storage, nullptr);
  }
  // Keeps, for each word, where its bytes come from.
  struct Tracker {
    const TextRange* of_text;               // one per byte of the text
    std::vector<const TextRange*> of_words;  // beside `words`
    std::deque<TextOrigin> storage;
  };
  void split(std::string_view text, bool at_start, std::vector<std::string_view>& words,
             std::deque<std::string>& storage, Tracker* tracker) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kNever, kFirst, kAlways };
  // All pre-tokenizers are this: replace spaces, put `prefix` in front, cut by a pattern.
  struct Step {
    std::string replacement;  // of spaces; empty: none
    std::string prefix;
    Prepend prepend = Prepend::kNever;
    bool cut = false;
    TextPattern pattern = TextPattern::literal("");
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  void add(const JsonNode& node, int depth);
  static void cut(const Step& step, std::string_view text, std::vector<std::string_view>& words);
  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace mso
