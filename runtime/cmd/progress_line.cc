#include "cmd/progress_line.h"

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/log.h"
#include "record/format.h"
#include "record/terminal.h"

namespace mso {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct State {
  bool live = find_terminal().live;
  std::string verb;
  Clock::time_point start = Clock::now(), told = Clock::now();
  bool finished = false;

  void show(uint64_t done, uint64_t total) {
    if (finished) return;
    std::string text = verb + " " + format_count(static_cast<int64_t>(done)) + " of " + format_count(static_cast<int64_t>(total));
    if (total > 0 && done > 0 && done < total) {
      const double share = static_cast<double>(done) / static_cast<double>(total), so_far = seconds_since(start);
      text += ", " + format_percent(share);
      if (so_far > 2) text += ", " + format_duration(so_far / share - so_far) + " left";
    }
    if (live) {
      std::fprintf(stderr, "\r%s\033[K", text.c_str());
      if (done >= total) std::fputs("\r\033[K", stderr);
      std::fflush(stderr);
    } else if (done < total && seconds_since(told) >= 10) {
      log_info("{}", text);
      told = Clock::now();
    }
    finished = done >= total;
  }
};

}  // namespace

std::function<void(uint64_t, uint64_t)> progress_line(const std::string& verb) {
  auto state = std::make_shared<State>();
  state->verb = verb;
  return [state](uint64_t done, uint64_t total) { state->show(done, total); };
}

std::function<void(const char*, uint64_t, uint64_t)> staged_progress_line() {
  auto state = std::make_shared<std::shared_ptr<State>>();
  return [state](const char* stage, uint64_t done, uint64_t total) {
    if (!*state || (*state)->verb != stage) {
      *state = std::make_shared<State>();
      (*state)->verb = stage;
    }
    (*state)->show(done, total);
  };
}

}  // namespace mso
