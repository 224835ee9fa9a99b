#include "base/kill_point.h"

#include <csignal>
#include <cstdlib>
#include <mutex>

#include "base/error.h"

namespace mso {

namespace {

std::mutex mutex;
int own_rank = -1;

int rank_of_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

KillOrder& order() {
  static KillOrder instance;
  return instance;
}

// Reads the variable before main(). A text that cannot be read is left for start-up checks to refuse.
[[maybe_unused]] const bool read_at_start = [] {
  if (const char* text = std::getenv("MSO_KILL_AT")) {
    try {
      set_kill_order(text);
    } catch (const Error&) {
    }
  }
  return true;
}();

long parse_number(const std::string& text, const std::string& whole) {
  size_t used = 0;
  long value = -1;
  try {
    value = std::stol(text, &used);
  } catch (const std::exception&) {
  }
  if (value < 0 || used != text.size())
    throw Error("bad MSO_KILL_AT", whole, "write <point>[:<count>][@<rank>]", ExitCode::kBadUsage);
  return value;
}

}  // namespace

namespace kill_point_detail {

std::atomic<bool> armed{false};

void passed(std::string_view prefix, std::string_view name) {
  std::lock_guard<std::mutex> lock(mutex);
  KillOrder& now = order();
  if (now.point.size() != prefix.size() + name.size() || now.point.compare(0, prefix.size(), prefix) != 0 ||
      now.point.compare(prefix.size(), name.size(), name) != 0)
    return;
  if (now.rank >= 0 && now.rank != (own_rank >= 0 ? own_rank : rank_of_environment())) return;
  if (--now.count == 0) ::raise(SIGKILL);
}

}  // namespace kill_point_detail

void set_kill_point_rank(int rank) {
  std::lock_guard<std::mutex> lock(mutex);
  own_rank = rank;
}

KillOrder parse_kill_order(const std::string& text) {
  KillOrder result;
  std::string rest = text;
  if (size_t at = rest.find('@'); at != std::string::npos) {
    result.rank = static_cast<int>(parse_number(rest.substr(at + 1), text));
    rest.resize(at);
  }
  if (size_t colon = rest.find(':'); colon != std::string::npos) {
    result.count = parse_number(rest.substr(colon + 1), text);
    rest.resize(colon);
  }
  if (rest.empty() || result.count < 1)
    throw Error("bad MSO_KILL_AT", text, "write <point>[:<count>][@<rank>]", ExitCode::kBadUsage);
  result.point = rest;
  return result;
}

KillOrder kill_order() {
  const char* text = std::getenv("MSO_KILL_AT");
  return text && *text ? parse_kill_order(text) : KillOrder{};
}

void set_kill_order(const std::string& text) {
  KillOrder next = text.empty() ? KillOrder{} : parse_kill_order(text);
  std::lock_guard<std::mutex> lock(mutex);
  order() = next;
  kill_point_detail::armed = !next.point.empty();
}

}  // namespace mso
