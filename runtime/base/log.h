// Logging: one line per event on standard error, with rank and time; repeated kinds are rate-limited.
// Use the spdlog-style functions: log_info("packed {} samples", n). Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace mso {

// Called once by main(): level is debug|info|warn|error (anything else: Error). `rank` < 0: no rank shown.
void init_logging(const std::string& level, int rank = -1);

template <typename... Args>
void log_debug(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_info(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warn(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_error(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

// True for the first event of `kind` and then at most once a minute, so that a million bad samples
// do not make a million lines. `*suppressed` (may be null) is how many were held back since the last line.
bool log_allowed(std::string_view kind, long* suppressed = nullptr);

}  // namespace mso
