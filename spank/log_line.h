// What the plugin writes into slurmd's log: one line of name=value pairs for each set-up and tear-down, and
// where lines go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mso {

// Printable ASCII of at most `limit` characters: others become '?'.
std::string printable(std::string_view text, size_t limit);

// "mso event=setup job=12 node=n1 result=ok reason=\"no room\"": values with blanks are quoted.
class LogLine {
 public:
  explicit LogLine(std::string_view event);
  LogLine& add(std::string_view name, std::string_view value);
  LogLine& add(std::string_view name, uint64_t value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Where lines go: slurmd's log in the plugin, standard error in programs and tests. Set once at the start.
using LogFunction = void (*)(bool error, const std::string& line);
void set_log_function(LogFunction function);
void log_line(const LogLine& line, bool error = false);
void log_text(const std::string& text, bool error = false);

}  // namespace mso
