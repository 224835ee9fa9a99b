#include "record/terminal.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/log.h"

namespace mso {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The process's name and parent, from /proc/PID/stat: "PID (name) state parent …"; the name may hold
// anything.
bool process_of(pid_t pid, std::string& name, pid_t& parent) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return false;
  name = text.substr(open + 1, close - open - 1);
  return std::sscanf(text.c_str() + close + 1, " %*c %d", &parent) == 1;
}

// The terminal that the launcher above us writes to; invalid when there is none.
FileDescriptor launcher_terminal() {
  static constexpr std::array<std::string_view, 6> kLaunchers = {"mpirun",  "mpiexec",       "orterun",
                                                                 "prterun", "mpiexec.hydra", "srun"};
  pid_t pid = ::getppid();
  for (int up = 0; up < 6 && pid > 1; ++up) {
    std::string name;
    pid_t parent = 0;
    if (!process_of(pid, name, parent)) break;
    if (std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end()) {
      std::string link = "/proc/" + std::to_string(pid) + "/fd/2";
      int fd = ::open(link.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
      if (fd >= 0 && ::isatty(fd)) return FileDescriptor(fd);
      if (fd >= 0) ::close(fd);
      break;
    }
    pid = parent;
  }
  return FileDescriptor();
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

class SinkAboveLine : public spdlog::sinks::base_sink<std::mutex> {
 public:
  SinkAboveLine(std::vector<spdlog::sink_ptr> inner, std::shared_ptr<LiveLine> line)
      : inner_(std::move(inner)), line_(std::move(line)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (line_) {
      line_->clear();
    } else {
      (void)!::write(STDERR_FILENO, "\r\x1b[K", 4);
    }
    for (auto& sink : inner_)
      if (sink->should_log(message.level)) sink->log(message), sink->flush();
    if (line_) line_->restore();
  }
  void flush_() override {
    for (auto& sink : inner_) sink->flush();
  }

 private:
  std::vector<spdlog::sink_ptr> inner_;
  std::shared_ptr<LiveLine> line_;
};

}  // namespace

int Terminal::width() const {
  struct winsize size {};
  int fd = size_from.valid() ? size_from.get() : STDERR_FILENO;
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  int columns = std::atoi(environment("COLUMNS").c_str());
  return columns > 0 ? columns : 80;
}

Terminal find_terminal() {
  Terminal terminal;
  terminal.utf8 = utf8_locale();
  bool dumb = environment("TERM") == "dumb";
  if (::isatty(STDERR_FILENO)) {
    terminal.live = !dumb;
  } else {
    terminal.size_from = launcher_terminal();
    terminal.live = terminal.size_from.valid() && !dumb;
  }
  std::string wish = environment("MSO_PROGRESS");
  if (wish == "live") terminal.live = true;
  if (wish == "plain") terminal.live = false;
  terminal.color = terminal.live && !dumb && environment("NO_COLOR").empty();
  return terminal;
}

void LiveLine::put(const std::string& bytes) {
  // One write a line, so that mpirun cannot cut it between two reads of ours; what fails is not worth a word.
  size_t at = 0;
  while (at < bytes.size()) {
    ssize_t n = ::write(fd_, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += n;
  }
}

void LiveLine::show(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  text_ = text;
  shown_ = true;
  put("\r" + text + "\x1b[K");
}

void LiveLine::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (shown_) put("\r\x1b[K");
}

void LiveLine::restore() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (shown_) put("\r" + text_ + "\x1b[K");
}

void LiveLine::finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (shown_) put("\n");
  shown_ = false;
}

struct LogsAboveLine::Before {
  std::shared_ptr<spdlog::logger> logger, ours;
};

LogsAboveLine::LogsAboveLine(std::shared_ptr<LiveLine> line) : before_(std::make_unique<Before>()) {
  before_->logger = spdlog::default_logger();
  auto sink = std::make_shared<SinkAboveLine>(before_->logger->sinks(), std::move(line));
  auto logger = std::make_shared<spdlog::logger>(before_->logger->name(), sink);
  logger->set_level(before_->logger->level());
  logger->flush_on(before_->logger->flush_level());
  before_->ours = logger;
  spdlog::set_default_logger(logger);
}

LogsAboveLine::~LogsAboveLine() {
  // Someone may have set up logging anew meanwhile; that stays.
  if (spdlog::default_logger() == before_->ours) spdlog::set_default_logger(before_->logger);
}

}  // namespace mso
