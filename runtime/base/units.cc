#include "base/units.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace mso {

std::optional<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double scale = 1;
  if (!unit.empty()) {
    constexpr std::string_view kPrefixes = "kmgt";
    const size_t power = kPrefixes.find(static_cast<char>(unit.front() | 0x20));
    if (power != std::string_view::npos) {
      scale = std::ldexp(1.0, 10 * (static_cast<int>(power) + 1));
      unit.remove_prefix(1);
      if (unit == "iB" || unit == "ib") unit.remove_prefix(2);
    }
    if (unit == "B" || unit == "b") unit.remove_prefix(1);
    if (!unit.empty()) return std::nullopt;
  }
  const double bytes = std::floor(number * scale);
  if (!(bytes < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string format_bytes(double bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit < 6) {
    bytes /= 1024;
    ++unit;
  }
  char text[48];
  const int decimals = unit == 0 || std::fabs(bytes) >= 99.95 ? 0 : std::fabs(bytes) >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, bytes, kUnits[unit]);
  return text;
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

}  // namespace mso
