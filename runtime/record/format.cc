#include "record/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

namespace mso {
namespace {

std::string fixed(double value, int decimals) {
  char buffer[400];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals).ptr;
  return std::string(buffer, end);
}

std::string two(int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

// Length of the well-formed UTF-8 sequence at `at`, 0 where there is none (RFC 3629: no overlong forms, no
// surrogates).
int sequence_length(std::string_view text, size_t at) {
  auto byte = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  unsigned a = byte(at), b = byte(at + 1), c = byte(at + 2), d = byte(at + 3);
  auto tail = [](unsigned x) { return (x & 0xc0) == 0x80; };
  if (a < 0x80) return 1;
  if (a >= 0xc2 && a <= 0xdf && tail(b)) return 2;
  if (a >= 0xe0 && a <= 0xef && tail(b) && tail(c) && !(a == 0xe0 && b < 0xa0) && !(a == 0xed && b > 0x9f))
    return 3;
  if (a >= 0xf0 && a <= 0xf4 && tail(b) && tail(c) && tail(d) && !(a == 0xf0 && b < 0x90) &&
      !(a == 0xf4 && b > 0x8f))
    return 4;
  return 0;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e12) return "?";
  if (seconds < 0) seconds = 0;
  if (seconds < 9.95) return fixed(seconds, 1) + " s";
  int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (hours == 0) return std::to_string(minutes) + ":" + two(whole % 60);
  if (days == 0) return std::to_string(hours) + ":" + two(minutes % 60) + ":" + two(whole % 60);
  return std::to_string(days) + " d " + two(hours % 24) + ":" + two(minutes % 60);
}

std::string format_short_duration(double seconds) {
  if (!(seconds < 9.95)) return format_duration(seconds);
  if (seconds < 0) seconds = 0;
  if (seconds < 0.0095) return fixed(seconds * 1000, 1) + " ms";
  return seconds < 0.9995 ? fixed(seconds * 1000, 0) + " ms" : fixed(seconds, 2) + " s";
}

std::string format_fixed(double value, int decimals) {
  return fixed(value, decimals);
}

std::string format_short_number(double value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 3).ptr;
  return std::string(buffer, end);
}

std::string format_quantity(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  double size = std::fabs(value);
  if (size >= 1e15) return format_loss(value);
  if (size >= 99.95) return format_count(std::llround(value));
  if (size >= 9.995) return fixed(value, 1);
  if (size >= 0.9995) return fixed(value, 2);
  return size == 0 ? "0" : format_loss(value);
}

std::string format_percent(double share) {
  if (!std::isfinite(share)) return "?";
  double percent = share * 100;
  return fixed(percent, std::fabs(percent) < 9.95 ? 1 : 0) + " %";
}

std::string format_loss(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  double size = std::fabs(value);
  if (size >= 0.9995 && size < 9999.5)
    return fixed(value, size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
  if (size >= 0.001 && size < 1) return fixed(value, 4);
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 4).ptr;
  return std::string(buffer, end);
}

std::string format_utc(double unix_seconds) {
  if (!std::isfinite(unix_seconds) || std::fabs(unix_seconds) > 2e11) return "?";
  std::time_t seconds = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm parts;
  char buffer[64];
  if (!::gmtime_r(&seconds, &parts)) return "?";
  return std::string(buffer, std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &parts));
}

std::string html_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    int length = sequence_length(text, at);
    unsigned char c = text[at];
    if (length == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\xef\xbf\xbd";
      ++at;
      continue;
    }
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.append(text, at, length);
    }
    at += length;
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned char c = text[at];
    if (c == 0x1b && at + 1 < text.size() && text[at + 1] == '[') {
      at += 2;
      while (at < text.size() && !(text[at] >= '@' && text[at] <= '~')) ++at;
    } else if ((c & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

}  // namespace mso
