#include "io/utf8.h"

#include <utf8proc.h>

#include <algorithm>

namespace mso {

namespace {
// Length of the well-formed sequence at the start of `text`, or minus the length of its maximal ill-formed
// part (Unicode 15, table 3-7).
int check_sequence(std::string_view text) {
  auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned first = at(0);
  if (first < 0x80) return 1;
  unsigned low = 0x80, high = 0xbf;  // range of the second byte
  int length = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return -1;
  }
  if (at(1) < low || at(1) > high) return -1;
  for (int i = 2; i < length; ++i)
    if (at(static_cast<size_t>(i)) < 0x80 || at(static_cast<size_t>(i)) > 0xbf) return -i;
  return length;
}
}  // namespace

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  size_t i = 0;
  while (i < text.size()) {
    int length = check_sequence(text.substr(i));
    if (length < 0) break;
    i += static_cast<size_t>(length);
  }
  if (i == text.size()) return text;
  storage.assign(text.substr(0, i));
  while (i < text.size()) {
    int length = check_sequence(text.substr(i));
    if (length < 0) {
      storage += "\xef\xbf\xbd";
      length = -length;
    } else {
      storage += text.substr(i, static_cast<size_t>(length));
    }
    i += static_cast<size_t>(length);
  }
  return storage;
}

void append_utf8(std::string& text, uint32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

uint32_t next_code_point(std::string_view text, size_t& position) {
  auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  size_t p = position, length = utf8_length(text[p]);
  position += length;
  switch (length) {
    case 1:
      return byte(p);
    case 2:
      return (byte(p) & 0x1f) << 6 | (byte(p + 1) & 0x3f);
    case 3:
      return (byte(p) & 0x0f) << 12 | (byte(p + 1) & 0x3f) << 6 | (byte(p + 2) & 0x3f);
    default:
      return (byte(p) & 0x07) << 18 | (byte(p + 1) & 0x3f) << 12 | (byte(p + 2) & 0x3f) << 6 |
             (byte(p + 3) & 0x3f);
  }
}

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word_character(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // Join_Control, and letters in circles and squares (Other_Alphabetic)
      return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
             (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  }
}

std::string_view trim_caption(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

uint64_t count_code_points(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::string lower_ascii(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace mso
