#include "io/ffmpeg.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "base/log.h"

namespace mso {
namespace {

void log_message(void* context, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_WARNING || !log_enabled(LogLevel::kDebug)) return;
  char line[512];
  int print_prefix = 1;
  av_log_format_line2(context, level, format, arguments, line, sizeof line, &print_prefix);
  std::string_view text(line);
  while (text.ends_with('\n')) text.remove_suffix(1);
  log_debug("FFmpeg: {}", text);
}

}  // namespace

void route_ffmpeg_messages() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_callback(log_message); });
}

std::string ffmpeg_error_text(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof text);
  return text;
}

}  // namespace mso
