#include "io/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "io/utf8.h"

namespace mso::jinja {
namespace {

// Longest first.
constexpr std::array<std::string_view, 25> kOperators = {"==", "!=", ">=", "<=", "//", "**", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ","};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Python's \s and str.strip() also take the separators U+001C to U+001F.
bool is_space(uint32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

class Lexer {
 public:
  Lexer(std::string_view given, const std::string& name) : name_(name) {
    // Line breaks of every kind become \n, and one at the very end goes.
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] == '\r') {
        source_ += '\n';
        if (i + 1 < given.size() && given[i + 1] == '\n') ++i;
      } else {
        source_ += given[i];
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    tokens_.push_back({Token::kEnd, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the chat template is not valid Jinja", name_ + " line " + std::to_string(line_) + ": " + what,
                "transformers reads what jinja2 takes; mend the template or give another one", ExitCode::kBadUsage);
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }
  size_t spaces(size_t from) const {
    size_t end = from;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_space(next_code_point(source_, next))) break;
      end = next;
    }
    return end - from;
  }

  // Text up to the next tag, stripped as the tag asks, then the tag. `sign`: what stands behind its two letters.
  void emit_data(std::string_view text, char sign, bool variable) {
    if (sign == '-') {
      size_t end = text.size();
      while (end > 0) {
        size_t start = end - 1;
        while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80) --start;
        size_t next = start;
        if (!is_space(next_code_point(text, next))) break;
        end = start;
      }
      text = text.substr(0, end);
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
      if (line > 0 || line_starting_) {
        bool blank = line < text.size();
        for (size_t i = line; i < text.size() && blank;) blank = is_space(next_code_point(text, i));
        if (blank) text = text.substr(0, line);
      }
    }
    if (!text.empty()) tokens_.push_back({Token::kData, std::string(text), line_});
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Bytes of `{% WORD %}` at `at`, 0 if something else stands there; `trim`: whether its end takes a line break along.
  size_t word_tag(size_t at, std::string_view word, bool trim) const {
    size_t i = at + 2;
    if (sign_at(i)) ++i;
    i += spaces(i);
    if (!std::string_view(source_).substr(i).starts_with(word)) return 0;
    i += word.size();
    i += spaces(i);
    if (std::string_view(source_).substr(i).starts_with("-%}")) return i + 3 + spaces(i + 3) - at;
    if (trim && std::string_view(source_).substr(i).starts_with("+%}")) return i + 3 - at;
    if (!std::string_view(source_).substr(i).starts_with("%}")) return 0;
    i += 2;
    if (trim && i < source_.size() && source_[i] == '\n') ++i;
    return i - at;
  }

  void finish_match(size_t bytes) {
    advance(bytes);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void data() {
    const size_t tag = [&] {
      for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i)
        if (i + 1 < source_.size() && (source_[i + 1] == '%' || source_[i + 1] == '{' || source_[i + 1] == '#')) return i;
      return std::string::npos;
    }();
    if (tag == std::string::npos) {
      tokens_.push_back({Token::kData, std::string(rest()), line_});
      return advance(source_.size() - at_);
    }
    const char kind = source_[tag + 1], sign = sign_at(tag + 2);
    emit_data(std::string_view(source_).substr(at_, tag - at_), sign, kind == '{');
    advance(tag - at_);
    if (kind == '#') return comment();
    if (kind == '%') {
      if (const size_t raw = word_tag(at_, "raw", false)) {
        finish_match(raw);
        return raw_text();
      }
    }
    const bool block = kind == '%';
    tokens_.push_back({block ? Token::kBlockBegin : Token::kVariableBegin, "", line_});
    finish_match(sign ? 3 : 2);
    expression(block);
  }

  void comment() {
    const int start = line_;
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) {
      line_ = start;
      fail("a comment does not end");
    }
    size_t after = end + 2;
    if (source_[end - 1] == '-' && end > at_ + 2)
      after += spaces(after);
    else if (!(source_[end - 1] == '+' && end > at_ + 2) && after < source_.size() && source_[after] == '\n')
      ++after;
    finish_match(after - at_);
  }

  void raw_text() {
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const size_t bytes = word_tag(tag, "endraw", true);
      if (bytes == 0) continue;
      emit_data(std::string_view(source_).substr(at_, tag - at_), sign_at(tag + 2), false);
      advance(tag - at_);
      return finish_match(bytes);
    }
    fail("raw does not end");
  }

  // Tokens up to the end of the tag.
  void expression(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string open;  // brackets
    while (true) {
      const size_t blank = spaces(at_);
      if (blank > 0) advance(blank);
      if (at_ >= source_.size()) fail(block ? "a tag {% does not end" : "a tag {{ does not end");
      if (open.empty()) {
        const bool minus = rest().starts_with('-') && rest().substr(1).starts_with(close);
        const bool plus = block && rest().starts_with('+') && rest().substr(1).starts_with(close);
        if (minus || plus || rest().starts_with(close)) {
          tokens_.push_back({block ? Token::kBlockEnd : Token::kVariableEnd, "", line_});
          size_t bytes = (minus || plus) + 2;
          if (minus)
            bytes += spaces(at_ + bytes);
          else if (block && !plus && at_ + bytes < source_.size() && source_[at_ + bytes] == '\n')
            ++bytes;
          return finish_match(bytes);
        }
      }
      const char c = source_[at_];
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        size_t end = at_;
        while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
        tokens_.push_back({Token::kName, source_.substr(at_, end - at_), line_});
        finish_match(end - at_);
      } else if (c == '\'' || c == '"') {
        text(c);
      } else {
        auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                  [&](std::string_view op) { return rest().starts_with(op); });
        if (found == kOperators.end()) fail("unexpected character '" + source_.substr(at_, utf8_length(c)) + "'");
        if (c == '(' || c == '[' || c == '{') open += c;
        if (c == ')' || c == ']' || c == '}') {
          const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
          if (open.empty() || open.back() != wanted) fail(std::string("unexpected '") + c + "'");
          open.pop_back();
        }
        tokens_.push_back({Token::kOperator, std::string(*found), line_});
        finish_match(found->size());
      }
    }
  }

  void number() {
    size_t end = at_;
    bool fraction = false;
    auto digits = [&] {
      while (end < source_.size() &&
             (is_digit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1]))))
        ++end;
    };
    digits();
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1]) &&
        !(at_ > 0 && source_[at_ - 1] == '.')) {
      ++end;
      digits();
      fraction = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t power = end + 1;
      if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
      if (power < source_.size() && is_digit(source_[power])) {
        end = power;
        digits();
        fraction = true;
      }
    }
    if (end < source_.size() && is_name_start(source_[end])) fail("a number is followed by letters");
    std::string digits_only = source_.substr(at_, end - at_);
    std::erase(digits_only, '_');
    if (digits_only.size() > 40) fail("a number is too long");
    if (!fraction && digits_only.size() > 1 && digits_only[0] == '0' &&
        digits_only.find_first_not_of('0') != std::string::npos)
      fail("a number begins with 0");
    tokens_.push_back({fraction ? Token::kFloat : Token::kInteger, std::move(digits_only), line_});
    finish_match(end - at_);
  }

  void text(char quote) {
    size_t i = at_ + 1;
    std::string value;
    auto hexadecimal = [&](size_t digits) {
      uint32_t code = 0;
      for (size_t k = 0; k < digits; ++k) {
        const char d = i < source_.size() ? source_[i++] : '\0';
        const int digit = is_digit(d) ? d - '0' : d >= 'a' && d <= 'f' ? d - 'a' + 10 : d >= 'A' && d <= 'F' ? d - 'A' + 10 : -1;
        if (digit < 0) fail("a text holds an unfinished \\x, \\u or \\U");
        code = code << 4 | static_cast<uint32_t>(digit);
      }
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("a text holds no character's number");
      append_utf8(value, code);
    };
    for (;;) {
      if (i >= source_.size()) fail("a text does not end");
      const char c = source_[i++];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (i >= source_.size()) fail("a text does not end");
      const char escape = source_[i++];
      static constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t known = kNames.find(escape); known != std::string_view::npos) {
        value += kValues[known];
      } else if (escape == '\n') {
        // a continued line
      } else if (escape == 'x') {
        hexadecimal(2);
      } else if (escape == 'u') {
        hexadecimal(4);
      } else if (escape == 'U') {
        hexadecimal(8);
      } else if (escape >= '0' && escape <= '7') {
        uint32_t code = static_cast<uint32_t>(escape - '0');
        for (int k = 0; k < 2 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7'; ++k)
          code = code * 8 + static_cast<uint32_t>(source_[i++] - '0');
        append_utf8(value, code);
      } else if (escape == 'N') {
        fail("\\N{…} in a text is not supported: write the character itself");
      } else {
        value += '\\';
        value += escape;
      }
    }
    tokens_.push_back({Token::kString, std::move(value), line_});
    finish_match(i - at_);
  }

  std::string source_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace mso::jinja
