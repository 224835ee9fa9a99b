#include "io/tokenizer_steps.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "io/utf8.h"

namespace mso {

namespace {
constexpr int kMaxDepth = 8;  // of sequences within sequences

// Source: pre_tokenizers/byte_level.rs of `tokenizers`, from encoder.py of openai/gpt-2.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string normal_form(std::string_view text, int options) {
  utf8proc_uint8_t* out = nullptr;
  utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &out,
                                       static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  if (size < 0)
    throw Error("cannot normalise a text",
                std::string(utf8proc_errmsg(size)) + ", " + std::to_string(text.size()) + " bytes", "",
                ExitCode::kBadData);
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
}

}  // namespace

TextNormalizer::TextNormalizer(const JsonNode& node) {
  if (!node.is_null()) add(node, 0);
}

void TextNormalizer::add(const JsonNode& node, int depth) {
  const std::string& type = node["type"].string();
  if (type == "NFC")
    steps_.push_back({Step::kNfc, {}});
  else if (type == "NFD")
    steps_.push_back({Step::kNfd, {}});
  else if (type == "NFKC")
    steps_.push_back({Step::kNfkc, {}});
  else if (type == "NFKD")
    steps_.push_back({Step::kNfkd, {}});
  else if (type == "Prepend")
    steps_.push_back({Step::kPrepend, node["prepend"].string()});
  else if (type == "Lowercase")
    steps_.push_back({Step::kLowercase, {}});
  else if (type == "Strip")
    steps_.push_back({Step::kStrip, {}, TextPattern::literal(""), node.boolean("strip_left", true), node.boolean("strip_right", true)});
  else if (type == "Replace")
    steps_.push_back({Step::kReplace, node["content"].string(), pattern_of(node["pattern"])});
  else if (type == "Sequence") {
    if (depth == kMaxDepth) node.fail("sequences are nested too deeply");
    JsonNode parts = node["normalizers"];
    for (size_t i = 0; i < parts.size(); ++i) add(parts[i], depth + 1);
  } else {
    node["type"].fail("the normalizer '" + type + "' is not supported",
                      "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, Sequence");
  }
}

namespace {
// Rust's char::to_lowercase: one character at a time, no final sigma.
std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c == 0x130)
      out += "i\u0307";
    else
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t at = 0;
    if (!is_white_space(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t at = start;
    if (!is_white_space(next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

// Marks, and the Hangul letters that end a syllable.
bool joins_previous(uint32_t c) {
  if (c < 0x300) return false;
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ME ||
         (c >= 0x1160 && c <= 0x11ff);
}

int form_options(int kind) {
  constexpr int kOptions[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                              UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  return kOptions[kind];
}
}  // namespace

std::optional<std::string> TextNormalizer::changed(const Step& step, std::string_view text) {
  switch (step.kind) {
    case Step::kPrepend:
      if (text.empty()) return {};
      return step.text + std::string(text);
    case Step::kReplace:
      return step.pattern.replace(text, step.text);
    case Step::kLowercase:
      return lower_case(text);
    case Step::kStrip:
      return std::string(stripped(text, step.left, step.right));
    case Step::kNfc:
      // What is below U+0300 (lead bytes below 0xcc) is in NFC.
      if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xcc; }))
        return {};
      [[fallthrough]];
    default:
      return normal_form(text, form_options(step.kind));
  }
}

std::string_view TextNormalizer::apply(std::string_view text, std::string& storage) const {
  for (const Step& step : steps_) {
    std::optional<std::string> out = changed(step, text);
    if (!out) continue;
    storage.swap(*out);  // `out` keeps alive what `text` may have viewed until here
    text = storage;
  }
  return text;
}

std::string_view TextNormalizer::apply(std::string_view text, std::string& storage, TextOrigin& origin) const {
  for (const Step& step : steps_) {
    std::optional<std::string> out = changed(step, text);
    if (!out) continue;
    origin = origin_after(step, text, *out, origin);
    storage.swap(*out);
    text = storage;
  }
  return text;
}

TextOrigin TextNormalizer::origin_after(const Step& step, std::string_view before, std::string_view after,
                                        const TextOrigin& origin) {
  TextOrigin out;
  out.reserve(after.size());
  auto copy = [&](size_t from, size_t to) { out.insert(out.end(), origin.begin() + static_cast<std::ptrdiff_t>(from), origin.begin() + static_cast<std::ptrdiff_t>(to)); };
  auto one = [&](size_t count, size_t from, size_t to) { out.insert(out.end(), count, {origin[from].start, origin[to - 1].end}); };
  switch (step.kind) {
    case Step::kPrepend:
      one(step.text.size(), 0, utf8_length(before[0]));
      copy(0, before.size());
      break;
    case Step::kReplace: {
      std::vector<TextSpan> spans;
      step.pattern.find(before, spans);
      for (const TextSpan& span : spans) {
        if (!span.match)
          copy(span.start, span.end);
        else if (span.start < span.end)
          one(step.text.size(), span.start, span.end);
        else  // an empty match: belongs to what follows it, else to what stands before
          out.insert(out.end(), step.text.size(), span.start < before.size() ? origin[span.start] : origin.empty() ? TextRange{0, 0} : origin.back());
      }
      break;
    }
    case Step::kLowercase:
      for (size_t at = 0; at < before.size();) {
        const size_t start = at;
        at += utf8_length(before[at]);
        one(lower_case(before.substr(start, at - start)).size(), start, at);
      }
      break;
    case Step::kStrip: {
      const size_t left = before.size() - stripped(before, step.left, false).size();
      copy(left, left + after.size());
      break;
    }
    default:
      // Letter by letter with the marks behind it, over which normal forms hardly ever reach; where they do, every byte
      // stands for the whole text.
      for (size_t at = 0; at < before.size();) {
        const size_t start = at;
        at += utf8_length(before[at]);
        for (size_t next = at; at < before.size() && joins_previous(next_code_point(before, next)); at = next) {}
        const std::string part = normal_form(before.substr(start, at - start), form_options(step.kind));
        if (part == before.substr(start, at - start))
          copy(start, at);
        else
          one(part.size(), start, at);
      }
      if (out.size() != after.size()) {
        out.clear();
        one(after.size(), 0, before.size());
      }
  }
  return out;
}

PreTokenizer::PreTokenizer(const JsonNode& node) {
  if (!node.is_null()) add(node, 0);
}

void PreTokenizer::add(const JsonNode& node, int depth) {
  const std::string& type = node["type"].string();
  if (byte_level_ && type != "Sequence")
    node.fail("a pre-tokenizer after ByteLevel is not supported", "ByteLevel has to be the last");
  Step step;
  if (type == "Sequence") {
    if (depth == kMaxDepth) node.fail("sequences are nested too deeply");
    JsonNode parts = node["pretokenizers"];
    for (size_t i = 0; i < parts.size(); ++i) add(parts[i], depth + 1);
    return;
  } else if (type == "Split") {
    step.cut = true;
    step.pattern = pattern_of(node["pattern"]);
    step.invert = node.boolean("invert", false);
    const std::string& behavior = node["behavior"].string();
    if (behavior == "Removed")
      step.behavior = Behavior::kRemoved;
    else if (behavior == "Isolated")
      step.behavior = Behavior::kIsolated;
    else if (behavior == "MergedWithPrevious")
      step.behavior = Behavior::kMergedWithPrevious;
    else if (behavior == "MergedWithNext")
      step.behavior = Behavior::kMergedWithNext;
    else if (behavior == "Contiguous")
      step.behavior = Behavior::kContiguous;
    else
      node["behavior"].fail("'" + behavior + "' is not a behaviour of Split");
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    if (node.boolean("add_prefix_space", true)) step.prefix = " ", step.prepend = Prepend::kAlways;
    step.cut = node.boolean("use_regex", true);
    if (step.cut) step.pattern = TextPattern::regex(kGpt2Pattern);
  } else if (type == "Metaspace") {
    step.replacement = step.prefix = node["replacement"].string();
    if (step.prefix.empty() || step.prefix.size() != utf8_length(step.prefix[0]))
      node["replacement"].fail("not a single character");
    std::string scheme = node.has("prepend_scheme") ? node["prepend_scheme"].string() : "always";
    if (!node.boolean("add_prefix_space", true)) scheme = "never";  // the key of older files
    if (scheme == "always")
      step.prepend = Prepend::kAlways;
    else if (scheme == "first")
      step.prepend = Prepend::kFirst;
    else if (scheme != "never")
      node["prepend_scheme"].fail("'" + scheme + "' is none of always, first, never");
    step.cut = node.boolean("split", true);
    step.pattern = TextPattern::literal(step.replacement);
    step.behavior = Behavior::kMergedWithNext;
  } else if (type == "WhitespaceSplit") {
    step.cut = true;
    step.pattern = TextPattern::regex("\\s+");
    step.behavior = Behavior::kRemoved;
  } else if (type == "Digits") {
    step.cut = true;
    step.pattern = TextPattern::regex("\\p{N}");
    step.behavior = node.boolean("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous;
  } else {
    node["type"].fail("the pre-tokenizer '" + type + "' is not supported",
                      "supported: ByteLevel, Split, Metaspace, Digits, WhitespaceSplit, Sequence");
  }
  steps_.push_back(std::move(step));
}

void PreTokenizer::cut(const Step& step, std::string_view text, std::vector<std::string_view>& words) {
  thread_local std::vector<TextSpan> spans;
  spans.clear();
  step.pattern.find(text, spans);
  if (step.invert)
    for (TextSpan& span : spans) span.match = !span.match;
  // Merging rules as in NormalizedString::split of `tokenizers`; spans of no length only separate.
  auto emit = [&](size_t start, size_t end) {
    if (start < end) words.push_back(text.substr(start, end - start));
  };
  bool previous = false;
  size_t start = 0, end = 0;
  switch (step.behavior) {
    case Behavior::kIsolated:
      for (const TextSpan& span : spans) emit(span.start, span.end);
      break;
    case Behavior::kRemoved:
      for (const TextSpan& span : spans)
        if (!span.match) emit(span.start, span.end);
      break;
    case Behavior::kContiguous:
    case Behavior::kMergedWithPrevious:
      for (const TextSpan& span : spans) {
        bool joins =
            step.behavior == Behavior::kContiguous ? span.match == previous : span.match && !previous;
        if (!joins) emit(start, end), start = span.start;
        end = span.end;
        previous = span.match;
      }
      emit(start, end);
      break;
    case Behavior::kMergedWithNext: {
      // Seen from the end: a match joins what follows it, unless that is a match as well.
      size_t first = words.size();
      start = end = text.size();
      for (size_t i = spans.size(); i-- > 0;) {
        if (!(spans[i].match && !previous)) emit(start, end), end = spans[i].end;
        start = spans[i].start;
        previous = spans[i].match;
      }
      emit(start, end);
      std::reverse(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
      break;
    }
  }
}

void PreTokenizer::split(std::string_view text, bool at_start, std::vector<std::string_view>& words,
                         std::deque<std::string>& storage, Tracker* tracker) const {
  if (text.empty()) return;
  const size_t first = words.size();
  words.push_back(text);
  if (tracker) tracker->of_words.push_back(tracker->of_text);
  for (const Step& step : steps_) {
    std::vector<std::string_view> in(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    std::vector<const TextRange*> origins;
    words.resize(first);
    if (tracker) {
      origins.assign(tracker->of_words.begin() + static_cast<std::ptrdiff_t>(first), tracker->of_words.end());
      tracker->of_words.resize(first);
    }
    for (size_t i = 0; i < in.size(); ++i) {
      std::string_view word = in[i];
      const TextRange* origin = tracker ? origins[i] : nullptr;
      if (!step.replacement.empty() && word.find(' ') != std::string_view::npos) {
        std::string& out = storage.emplace_back();
        out.reserve(word.size() * 2);
        TextOrigin* moved = tracker ? &tracker->storage.emplace_back() : nullptr;
        for (size_t k = 0; k < word.size(); ++k) {
          const size_t size = out.size();
          if (word[k] == ' ')
            out += step.replacement;
          else
            out += word[k];
          if (moved) moved->insert(moved->end(), out.size() - size, origin[k]);
        }
        word = out;
        if (moved) origin = moved->data();
      }
      bool prepend =
          step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start && i == 0);
      if (prepend && !word.starts_with(step.prefix)) {
        std::string& out = storage.emplace_back(step.prefix);
        out += word;
        if (tracker) {
          TextOrigin& moved = tracker->storage.emplace_back(step.prefix.size(), TextRange{origin[0].start, origin[utf8_length(word[0]) - 1].end});
          moved.insert(moved.end(), origin, origin + word.size());
          origin = moved.data();
        }
        word = out;
      }
      const size_t before = words.size();
      if (step.cut)
        cut(step, word, words);
      else
        words.push_back(word);
      for (size_t k = before; tracker && k < words.size(); ++k)
        tracker->of_words.push_back(origin + (words[k].data() - word.data()));
    }
  }
}

}  // namespace mso
