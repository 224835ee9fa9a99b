#include "io/ffmpeg.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "base/log.h"

namespace mso {
namespace {

thread_local std::string* demuxer_error = nullptr;

bool is_demuxer(void* context) {
  const AVClass* its = context ? *static_cast<const AVClass**>(context) : nullptr;
  if (!its) return false;
  return (its->get_category ? its->get_category(context) : its->category) == AV_CLASS_CATEGORY_DEMUXER;
}

void log_message(void* context, int level, const char* format, va_list arguments) {
  const bool caught = demuxer_error && level <= AV_LOG_ERROR && demuxer_error->empty() && is_demuxer(context);
  if (!caught && (level > AV_LOG_WARNING || !log_enabled(LogLevel::kDebug))) return;
  char line[512];
  int print_prefix = 1;
  av_log_format_line2(caught ? nullptr : context, level, format, arguments, line, sizeof line, &print_prefix);
  std::string_view text(line);
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (caught) *demuxer_error = text;
  log_debug("FFmpeg: {}", text);
}

}  // namespace

void route_ffmpeg_messages() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_callback(log_message); });
}

DemuxerErrors::DemuxerErrors(std::string* first) {
  demuxer_error = first;
}
DemuxerErrors::~DemuxerErrors() {
  demuxer_error = nullptr;
}

std::string ffmpeg_error_text(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof text);
  return text;
}

}  // namespace mso
