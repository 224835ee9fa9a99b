#include "spank/log_line.h"

#include <cstdio>

namespace mso {

namespace {
void to_standard_error(bool, const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}
LogFunction log_function = to_standard_error;
}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string result(text.substr(0, limit));
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > limit) result += "...";
  return result;
}

LogLine::LogLine(std::string_view event) : text_("mso event=" + std::string(event)) {}

LogLine& LogLine::add(std::string_view name, std::string_view value) {
  std::string shown = printable(value, 300);
  if (shown.empty() || shown.find_first_of(" \"=") != std::string::npos) {
    for (char& c : shown)
      if (c == '"') c = '\'';
    shown = '"' + shown + '"';
  }
  text_ += " " + std::string(name) + "=" + shown;
  return *this;
}

LogLine& LogLine::add(std::string_view name, uint64_t value) {
  return add(name, std::string_view(std::to_string(value)));
}

void set_log_function(LogFunction function) {
  log_function = function;
}

void log_line(const LogLine& line, bool error) {
  log_function(error, line.text());
}

void log_text(const std::string& text, bool error) {
  log_function(error, text);
}

}  // namespace mso
