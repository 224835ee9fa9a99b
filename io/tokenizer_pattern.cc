#include "io/tokenizer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdexcept>

#include "base/error.h"
#include "io/utf8.h"

namespace mso {

namespace {
// Oniguruma's classes, to stand inside brackets. Its \s is the property White_Space; PCRE2's also takes
// U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Its \w is Alphabetic, M, Nd and Pc (the letters in circles and squares are Alphabetic by Other_Alphabetic),
// and of Latin-1 also the small and the broken numbers.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})"
    R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

[[noreturn]] void refuse(std::string_view what) {
  throw std::invalid_argument("'" + std::string(what) + "' in a pattern is not supported");
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  std::string run() {
    while (at_ < in_.size()) {
      char c = in_[at_];
      if (c == '\\')
        escape(false);
      else if (c == '[')
        bracket();
      else if (c == '(')
        group();
      else if (c == '{')
        repeat();
      else
        out_ += c, ++at_;
    }
    return std::move(out_);
  }

 private:
  char peek(size_t offset = 0) const { return at_ + offset < in_.size() ? in_[at_ + offset] : '\0'; }

  void code_point(size_t digits_at, size_t length) {
    std::string digits(in_.substr(digits_at, length));
    if (digits.size() != length || digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse(in_.substr(at_, 8));
    out_ += "\\x{" + digits + "}";
    at_ = digits_at + length;
  }

  void property() {  // \p{Lu}, \P{Lu}, \p{^Lu}, \p{Han}
    size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse(in_.substr(at_, 4));
    bool negative = in_[at_ + 1] == 'P';
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) negative = !negative, name.remove_prefix(1);
    if (name.empty() || name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") !=
                            std::string_view::npos)
      refuse(in_.substr(at_, close + 1 - at_));
    out_ += negative ? "\\P{" : "\\p{";
    // Short names are general categories. Others are scripts, which PCRE2 would take as Script_Extensions.
    if (name.size() > 2) out_ += "sc:";
    (out_ += name) += '}';
    at_ = close + 1;
  }

  void escape(bool in_class) {
    char c = peek(1);
    auto set = [&](std::string_view members, bool negative) {
      if (in_class && negative) refuse(in_.substr(at_, 2));
      if (in_class)
        out_ += members;
      else
        ((out_ += negative ? "[^" : "[") += members) += ']';
      at_ += 2;
    };
    auto letter = [&](std::string_view code) { out_ += code, at_ += 2; };
    switch (c) {
      case 's':
        return set(kSpace, false);
      case 'S':
        return in_class ? set(kNotSpace, false) : set(kSpace, true);
      case 'd':
        return set("\\p{Nd}", false);
      case 'D':
        return set("\\P{Nd}", false);
      case 'w':
        return set(kWord, false);
      case 'W':
        return set(kWord, true);
      case 'h':
        return set("0-9a-fA-F", false);
      case 'H':
        return set("0-9a-fA-F", true);
      case 'p':
      case 'P':
        return property();
      case 't':
      case 'r':
      case 'n':
      case 'f':
      case 'a':
      case 'e':
        out_ += in_.substr(at_, 2), at_ += 2;
        return;
      case 'v':
        return letter("\\x{b}");
      case 'u':
        return code_point(at_ + 2, 4);
      case 'x': {
        if (peek(2) == '{') {
          size_t close = in_.find('}', at_);
          if (close == std::string_view::npos) refuse(in_.substr(at_, 3));
          code_point(at_ + 3, close - at_ - 3);
          ++at_;
          return;
        }
        if (peek(2) >= '8') refuse(in_.substr(at_, 4));  // a byte of a longer character in Oniguruma
        return code_point(at_ + 2, 2);
      }
      default:
        // Punctuation and other characters stand for themselves; letters and digits would be something else.
        if (c == '\0' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
          refuse(in_.substr(at_, 2));
        if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
        out_ += c;
        at_ += 2;
    }
  }

  void bracket() {
    out_ += '[', ++at_;
    if (peek() == '^') out_ += '^', ++at_;
    if (peek() == ']') refuse("[]");
    while (peek() != ']') {
      if (at_ >= in_.size()) refuse("[ without ]");
      char c = in_[at_];
      if (c == '[') refuse("[ within [ ]");
      if (c == '&' && peek(1) == '&') refuse("&& within [ ]");
      if (c == '\\')
        escape(true);
      else
        out_ += c, ++at_;
    }
    out_ += ']', ++at_;
  }

  void group() {
    if (peek(1) != '?') {
      if (peek(1) == '*') refuse("(*");  // a verb of PCRE2
      out_ += '(', ++at_;
      return;
    }
    for (std::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"})
      if (in_.substr(at_).starts_with(plain)) {
        out_ += plain, at_ += plain.size();
        return;
      }
    // Elsewhere than at the start the two differ in how far the option reaches over "|".
    if (at_ == 0 && in_.starts_with("(?i)")) {
      out_ += "(?i)", at_ += 4;
      return;
    }
    refuse(in_.substr(at_, 4));
  }

  void repeat() {
    size_t i = at_ + 1;
    auto digits = [&] {
      size_t start = i;
      while (i < in_.size() && in_[i] >= '0' && in_[i] <= '9') ++i;
      return in_.substr(start, i - start);
    };
    std::string_view low = digits(), high;
    bool comma = i < in_.size() && in_[i] == ',';
    if (comma) ++i, high = digits();
    if (i >= in_.size() || in_[i] != '}' || (low.empty() && high.empty())) {  // not a quantifier
      out_ += "\\{", ++at_;
      return;
    }
    char next = i + 1 < in_.size() ? in_[i + 1] : '\0';
    if (next == '+' || (next == '?' && !comma)) refuse(in_.substr(at_, i + 2 - at_));
    out_ += '{';
    out_ += low.empty() ? "0" : low;
    if (comma) (out_ += ',') += high;
    out_ += '}';
    at_ = i + 1;
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
};

// What a thread needs to match; kept, because making it costs more than matching a word.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr);
  Scratch() {
    if (!data || !context) throw std::bad_alloc();
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_heap_limit(context, 64 << 10);  // KiB; for the interpreter, where there is no JIT
  }
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

std::string message(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

void find_literal(std::string_view text, std::string_view wanted, std::vector<TextSpan>& spans) {
  size_t done = 0;
  if (!wanted.empty()) {
    for (size_t at; (at = text.find(wanted, done)) != std::string_view::npos; done = at + wanted.size()) {
      if (done != at) spans.push_back({done, at, false});
      spans.push_back({at, at + wanted.size(), true});
    }
  }
  if (done != text.size()) spans.push_back({done, text.size(), false});
}
}  // namespace

std::string translate_pattern(std::string_view oniguruma) {
  return Translator(oniguruma).run();
}

TextPattern TextPattern::literal(std::string text) {
  TextPattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

TextPattern TextPattern::regex(std::string_view oniguruma) {
  std::string text = translate_pattern(oniguruma);
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), 64 << 10);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ are those of lines.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &offset, context.get());
  if (!code)
    throw std::invalid_argument("the pattern does not compile: " + message(error) + " at byte " +
                                std::to_string(offset) + " of '" + text.substr(0, 500) + "'");
  TextPattern pattern;
  pattern.code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  pattern.text_ = oniguruma;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails, pcre2_match interprets
  return pattern;
}

void TextPattern::find(std::string_view text, std::vector<TextSpan>& spans) const {
  if (text.empty()) return;
  if (!code_) return find_literal(text, text_, spans);
  thread_local Scratch scratch;
  pcre2_set_match_limit(scratch.context,
                        static_cast<uint32_t>(std::min<size_t>(1'000'000 + 8 * text.size(), 1u << 31)));
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.data);
  size_t done = 0;                                 // end of the last span
  size_t from = 0;                                 // where to search on
  size_t last_match_end = std::string_view::npos;  // an empty match right behind a match does not count
  while (from <= text.size()) {
    int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      throw Error(
          "cannot split a text into words: " + message(rc),
          "pattern '" + text_.substr(0, 200) + "' on a text of " + std::to_string(text.size()) + " bytes",
          "shorten the text, or use a pattern that needs less backtracking", ExitCode::kBadData);
    size_t start = found[0], end = found[1];
    if (start == end && end == last_match_end) {
      from += from < text.size() ? utf8_length(text[from]) : 1;
      continue;
    }
    if (done < start) spans.push_back({done, start, false});
    spans.push_back({start, end, true});
    done = from = last_match_end = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
}

std::string TextPattern::replace(std::string_view text, std::string_view content) const {
  constexpr size_t kMaxGrowth = 64 << 20;  // a few such steps in a row could fill the memory
  std::vector<TextSpan> spans;
  find(text, spans);
  std::string out;
  for (const TextSpan& span : spans) {
    out += span.match ? content : text.substr(span.start, span.end - span.start);
    if (out.size() > text.size() + kMaxGrowth)
      throw Error("replacing makes a text too long", "pattern '" + text_.substr(0, 200) + "'",
                  "it would grow by more than 64 MiB", ExitCode::kBadData);
  }
  return out;
}

TextPattern pattern_of(const JsonNode& node) {
  if (node.value().is_object() && node.has("String")) return TextPattern::literal(node["String"].string());
  JsonNode regex = node["Regex"];
  try {
    return TextPattern::regex(regex.string());
  } catch (const std::invalid_argument& error) {
    regex.fail(error.what());
  }
}

}  // namespace mso
