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
  else if (type == "Replace")
    steps_.push_back({Step::kReplace, node["content"].string(), pattern_of(node["pattern"])});
  else if (type == "Sequence") {
    if (depth == kMaxDepth) node.fail("sequences are nested too deeply");
    JsonNode parts = node["normalizers"];
    for (size_t i = 0; i < parts.size(); ++i) add(parts[i], depth + 1);
  } else {
    node["type"].fail("the normalizer '" + type + "' is not supported",
                      "supported: NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence");
  }
}

std::string_view TextNormalizer::apply(std::string_view text, std::string& storage) const {
  for (const Step& step : steps_) {
    std::string out;
    switch (step.kind) {
      case Step::kPrepend:
        if (text.empty()) continue;
        out = step.text;
        out += text;
        break;
      case Step::kReplace:
        out = step.pattern.replace(text, step.text);
        break;
      case Step::kNfc:
        // What is below U+0300 (lead bytes below 0xcc) is in NFC.
        if (std::none_of(text.begin(), text.end(),
                         [](char c) { return static_cast<unsigned char>(c) >= 0xcc; }))
          continue;
        out = normal_form(text, UTF8PROC_COMPOSE);
        break;
      case Step::kNfd:
        out = normal_form(text, UTF8PROC_DECOMPOSE);
        break;
      case Step::kNfkc:
        out = normal_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
        break;
      case Step::kNfkd:
        out = normal_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
        break;
    }
    storage.swap(out);  // `out` keeps alive what `text` may have viewed until here
    text = storage;
  }
  return text;
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
  } else if (type == "Digits") {
    step.cut = true;
    step.pattern = TextPattern::regex("\\p{N}");
    step.behavior = node.boolean("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous;
  } else {
    node["type"].fail("the pre-tokenizer '" + type + "' is not supported",
                      "supported: ByteLevel, Split, Metaspace, Digits, Sequence");
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
                         std::deque<std::string>& storage) const {
  if (text.empty()) return;
  const size_t first = words.size();
  words.push_back(text);
  for (const Step& step : steps_) {
    std::vector<std::string_view> in(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    words.resize(first);
    for (size_t i = 0; i < in.size(); ++i) {
      std::string_view word = in[i];
      if (!step.replacement.empty() && word.find(' ') != std::string_view::npos) {
        std::string& out = storage.emplace_back();
        out.reserve(word.size() * 2);
        for (char c : word)
          if (c == ' ')
            out += step.replacement;
          else
            out += c;
        word = out;
      }
      bool prepend =
          step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && at_start && i == 0);
      if (prepend && !word.starts_with(step.prefix)) {
        std::string& out = storage.emplace_back(step.prefix);
        out += word;
        word = out;
      }
      if (step.cut)
        cut(step, word, words);
      else
        words.push_back(word);
    }
  }
}

}  // namespace mso
