#include "base/glob.h"

#include <cstddef>

namespace mso {

bool glob_match(std::string_view pattern, std::string_view name) {
  // On a mismatch the last star takes one more character: linear space, no recursion.
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t p = 0, n = 0, star = kNone, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != kNone) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace mso
