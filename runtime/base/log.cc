#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <chrono>
#include <map>
#include <mutex>

#include "base/error.h"

namespace mso {

void init_logging(const std::string& level, int rank) {
  spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw Error("unknown log level", level, "use debug, info, warn or error", ExitCode::kBadUsage);
  auto logger = std::make_shared<spdlog::logger>("mso", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  std::string who = rank < 0 ? "" : "[rank " + std::to_string(rank) + "] ";
  logger->set_pattern("%H:%M:%S.%e %^%l%$ " + who + "%v");
  spdlog::set_default_logger(logger);
}

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
