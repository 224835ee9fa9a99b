// The terminal a person watches: found also behind mpirun, one live line at its bottom, log lines above it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/file.h"

namespace mso {

// What standard error leads to. mpirun gives its ranks a pipe for stderr (and a pseudo-terminal for stdout,
// whatever its own is), so for a child of mpirun it is mpirun's own stderr that counts.
struct Terminal {
  bool live = false;         // a line may be redrawn
  bool utf8 = false;         // by LC_ALL, LC_CTYPE, LANG
  bool color = false;        // not with NO_COLOR or TERM=dumb
  FileDescriptor size_from;  // a descriptor of the terminal, to ask its width; may be invalid

  int width() const;  // columns, 80 when not known
};

// MSO_PROGRESS=live|plain overrides what is found.
Terminal find_terminal();

// One line at the bottom of the terminal, rewritten in place. Thread-safe.
class LiveLine {
 public:
  explicit LiveLine(int fd) : fd_(fd) {}
  void show(const std::string& text);  // replaces the line
  void clear();                        // takes it away, as before printing something else
  void restore();                      // shows it again
  void finish();                       // leaves it standing and goes to the next line

 private:
  void put(const std::string& bytes);
  std::mutex mutex_;
  int fd_;
  std::string text_;
  bool shown_ = false;
};

// While it lives, log lines on standard error do not run into a live line: `line` is taken away and shown
// again around each (rank 0), or, with no line of its own, each log line first clears the terminal's current
// line (the other ranks, whose stderr mpirun merges with that of rank 0). Make and end it while no other
// thread logs.
class LogsAboveLine {
 public:
  explicit LogsAboveLine(std::shared_ptr<LiveLine> line = nullptr);
  ~LogsAboveLine();
  LogsAboveLine(const LogsAboveLine&) = delete;
  LogsAboveLine& operator=(const LogsAboveLine&) = delete;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

}  // namespace mso
