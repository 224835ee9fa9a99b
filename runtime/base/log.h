// Logging: one line per event on standard error, with rank and time; repeated kinds are rate-limited.
// Use it with fmt's placeholders: log_info("packed {} samples", n). Thread-safe.
#pragma once

#include <fmt/core.h>  // not spdlog's headers, which cost every file three seconds of compiling

#include <string>
#include <string_view>

namespace mso {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Called by main(): level is debug|info|warn|error|off (anything else: Error). `rank` < 0: no rank shown.
void init_logging(const std::string& level, int rank = -1);
// Shows this rank in every line from now on.
void set_log_rank(int rank);

bool log_enabled(LogLevel level);
void write_log(LogLevel level, std::string_view text);
// Lines go to this file too, appended. Storage that cannot be written is no error: the file is left out with a warning.
void add_log_file(const std::string& path);
void flush_log();  // before the process leaves without running destructors

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kError, format, std::forward<Args>(args)...);
}

// True for the first event of `kind` and then at most once a minute, so that a million bad samples
// do not make a million lines. `*suppressed` (may be null) is how many were held back since the last line.
bool log_allowed(std::string_view kind, long* suppressed = nullptr);

}  // namespace mso
