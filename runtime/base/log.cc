#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <mutex>

#include "base/error.h"

namespace mso {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string pattern(int rank) {
  return "%H:%M:%S.%e %^%l%$ " + (rank < 0 ? std::string() : "[rank " + std::to_string(rank) + "] ") + "%v";
}

}  // namespace

void init_logging(const std::string& level, int rank) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw Error("unknown log level", level, "use debug, info, warn or error", ExitCode::kBadUsage);
  auto logger = std::make_shared<spdlog::logger>("mso", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  logger->set_pattern(pattern(rank));
  spdlog::set_default_logger(logger);
}

void set_log_rank(int rank) { spdlog::default_logger()->set_pattern(pattern(rank)); }

bool log_enabled(LogLevel level) { return spdlog::default_logger_raw()->should_log(to_spdlog(level)); }

void write_log(LogLevel level, std::string_view text) {
  spdlog::default_logger_raw()->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

void add_log_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    spdlog::default_logger()->sinks().push_back(sink);
  } catch (const spdlog::spdlog_ex& e) {
    log_warn("no log file: {}", e.what());
  }
}

void flush_log() { spdlog::default_logger_raw()->flush(); }

bool log_allowed(std::string_view kind, long* suppressed) {
  struct State {
    std::chrono::steady_clock::time_point last;
    long held_back = 0;
  };
  static std::mutex mutex;
  static std::map<std::string, State, std::less<>> states;
  std::lock_guard<std::mutex> lock(mutex);
  auto now = std::chrono::steady_clock::now();
  auto [it, first] = states.try_emplace(std::string(kind), State{now, 0});
  if (suppressed) *suppressed = 0;
  if (!first && now - it->second.last < std::chrono::minutes(1)) {
    ++it->second.held_back;
    return false;
  }
  if (suppressed) *suppressed = it->second.held_back;
  it->second = State{now, 0};
  return true;
}

}  // namespace mso
