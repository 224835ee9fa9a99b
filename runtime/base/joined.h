// Words in one text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mso {

inline std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += separator;
    text += words[i];
  }
  return text;
}

}  // namespace mso
