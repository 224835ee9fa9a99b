// UTF-8: checking and repairing text, and walking over its code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mso {

// `text` itself when it is valid UTF-8; else a view of `storage`, filled with the text in which each maximal
// ill-formed part is U+FFFD (Unicode 15, chapter 3, "U+FFFD Substitution of Maximal Subparts": what Python's
// errors="replace" and Rust's from_utf8_lossy do).
std::string_view valid_utf8(std::string_view text, std::string& storage);

void append_utf8(std::string& text, uint32_t code_point);

// Bytes of the character that begins with `first`; the text must be valid.
inline size_t utf8_length(char first) {
  auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The code point at `position` of a valid text; moves `position` behind it.
uint32_t next_code_point(std::string_view text, size_t& position);

// Unicode's White_Space, and the word characters of UTS #18 (Alphabetic, M, Nd, Pc, Join_Control): what \s
// and \w are in Rust's regular expressions.
bool is_white_space(uint32_t code_point);
bool is_word_character(uint32_t code_point);

// Characters of a valid text; of another, its bytes that begin one.
uint64_t count_code_points(std::string_view text);

// Letters of ASCII alone: extensions of files.
std::string lower_ascii(std::string text);

// A caption as people write it into a file: without byte order mark and without blank space around it.
std::string_view trim_caption(std::string_view text);

}  // namespace mso
