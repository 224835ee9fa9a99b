#include "record/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mso {
namespace {

constexpr double kReopenEverySeconds = 10;
constexpr size_t kTailBlock = 1 << 16;

// Where the last whole line ends: the offset after the last newline that is followed by no other; 0 without
// one.
int64_t end_of_last_line(int fd, int64_t size, const std::filesystem::path& path) {
  std::string block;
  for (int64_t end = size; end > 0;) {
    int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(kTailBlock));
    block.resize(end - begin);
    pread_all(fd, block.data(), block.size(), begin, path);
    size_t newline = block.rfind('\n');
    if (newline != std::string::npos) return begin + static_cast<int64_t>(newline) + 1;
    end = begin;
  }
  return 0;
}

int64_t step_of(const Record& record) {
  if (auto* r = std::get_if<StepRecord>(&record)) return r->step;
  return -1;
}

double time_of(const Record& record) {
  return std::visit(
      [](const auto& r) {
        if constexpr (requires { r.time; }) return r.time;
        return 0.0;
      },
      record);
}

}  // namespace

double MetricsWriter::now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

MetricsWriter::MetricsWriter(std::filesystem::path path) : path_(std::move(path)) {
  open();
}

MetricsWriter::~MetricsWriter() {
  if (lost_ > 0) log_warn("{} lines of {} were lost", lost_, path_.string());
}

bool MetricsWriter::open() {
  if (fd_.valid()) return true;
  try {
    std::error_code ignored;
    if (!opened_once_) found_.existed = std::filesystem::exists(path_, ignored);
    fd_ = open_file(path_, O_RDWR | O_APPEND | O_CREAT);
    mend();
    opened_once_ = true;
    return true;
  } catch (const Error& error) {
    fd_.reset();
    next_open_ = now() + kReopenEverySeconds;
    fail(error.what());
    return false;
  }
}

// Cuts what follows the last newline, unless it is a whole object that only lacks the newline. Reads the tail
// for found().
void MetricsWriter::mend() {
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0) throw system_error("cannot stat", path_.string());
  if (!S_ISREG(info.st_mode)) return;
  int64_t size = info.st_size, whole = end_of_last_line(fd_.get(), size, path_);
  newline_first_ = false;
  if (whole < size) {
    std::string rest(std::min<int64_t>(size - whole, kTailBlock), '\0');
    pread_all(fd_.get(), rest.data(), rest.size(), whole, path_);
    Record ignored;
    if (size - whole < static_cast<int64_t>(kTailBlock) && parse_record(rest, ignored)) {
      newline_first_ = true;
    } else {
      if (::ftruncate(fd_.get(), whole) != 0)
        throw system_error("cannot mend the torn last line of", path_.string());
      log_warn("{}: the last line was torn ({} bytes); it is cut off", path_.string(), size - whole);
      found_.torn_bytes += size - whole;
      size = whole;
    }
  }
  if (opened_once_) return;
  // The last megabyte holds thousands of lines: enough to find the last step.
  int64_t begin = std::max<int64_t>(0, size - (int64_t{1} << 20));
  std::string tail(size - begin, '\0');
  pread_all(fd_.get(), tail.data(), tail.size(), begin, path_);
  std::string_view text(tail);
  bool have_time = false;
  while (!text.empty()) {
    if (text.back() == '\n') text.remove_suffix(1);
    size_t newline = text.rfind('\n');
    std::string_view line = newline == std::string_view::npos ? text : text.substr(newline + 1);
    Record record;
    if (!line.empty() && parse_record(line, record)) {
      if (const auto* end = std::get_if<EndRecord>(&record); end && end->exit_code == 0) found_.finished = true;
      if (!have_time && time_of(record) > 0) found_.last_time = time_of(record), have_time = true;
      if (int64_t step = step_of(record); step >= 0) {
        found_.last_step = step;
        return;
      }
    }
    if (newline == std::string_view::npos) return;
    text = text.substr(0, newline + 1);
  }
}

void MetricsWriter::fail(const std::string& why) {
  if (warned_) return;
  warned_ = true;
  log_warn("training goes on without {}: {}", path_.filename().string(), why);
}

bool MetricsWriter::append(const std::string& line) {
  struct stat info;
  bool sized = ::fstat(fd_.get(), &info) == 0 && S_ISREG(info.st_mode);
  ssize_t n;
  do {
    n = ::write(fd_.get(), line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(line.size())) return true;
  std::string why = n < 0 ? std::strerror(errno) : "no space left (part of a line was written)";
  // A part of a line is taken back, so that the next one starts cleanly.
  if (n > 0 && !(sized && ::ftruncate(fd_.get(), info.st_size) == 0)) newline_first_ = true;
  if (n < 0 && (errno == EIO || errno == ESTALE)) fd_.reset();  // a lost mount: only a new open can help
  fail(why);
  return false;
}

void MetricsWriter::write_line(std::string line, int attempt) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool usable = fd_.valid() || (now() >= next_open_ && open());
  if (usable && lost_now_ > 0) {
    IncidentRecord lost{now(), attempt, "metrics_lost",
                        std::to_string(lost_now_) + " lines could not be written here"};
    line = to_json(lost) + '\n' + line;
  }
  if (newline_first_) line.insert(line.begin(), '\n');
  line += '\n';
  bool restore_newline = newline_first_;
  newline_first_ = false;
  if (usable && append(line)) {
    if (lost_now_ > 0)
      log_info("{} is written again; {} lines are missing", path_.filename().string(), lost_now_);
    lost_now_ = 0;
    warned_ = false;
  } else {
    newline_first_ = newline_first_ || restore_newline;
    ++lost_;
    ++lost_now_;
  }
}

void MetricsWriter::sync() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_.valid()) (void)::fdatasync(fd_.get());
}

int64_t MetricsWriter::lost_lines() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return lost_;
}

MetricsReader::MetricsReader(const std::filesystem::path& path)
    : path_(path), fd_(open_file(path, O_RDONLY)) {}

// The next line without its newline; `whole` is false for a last one that has none.
bool MetricsReader::next_line(std::string_view& line, bool& whole) {
  size_t searched = at_;
  for (;;) {
    size_t newline = buffer_.find('\n', searched);
    if (newline != std::string::npos) {
      line = std::string_view(buffer_).substr(at_, newline - at_);
      at_ = newline + 1;
      ++line_;
      return whole = true;
    }
    if (end_) {
      if (at_ == buffer_.size()) return false;
      line = std::string_view(buffer_).substr(at_);
      at_ = buffer_.size();
      ++line_;
      whole = false;
      return true;
    }
    searched = buffer_.size() - at_;
    buffer_.erase(0, at_);
    at_ = 0;
    size_t have = buffer_.size();
    buffer_.resize(have + (1 << 18));
    ssize_t n;
    do {
      n = ::read(fd_.get(), buffer_.data() + have, buffer_.size() - have);
    } while (n < 0 && errno == EINTR);
    if (n < 0) throw system_error("cannot read", path_.string());
    buffer_.resize(have + n);
    if (n == 0) end_ = true;
  }
}

void MetricsReader::note_damaged() {
  ++damaged_.count;
  if (damaged_.first.size() < DamagedLines::kNamed) damaged_.first.push_back(line_);
}

std::string DamagedLines::text() const {
  std::string out = count == 1 ? "line " : "lines ";
  const int64_t more = count - static_cast<int64_t>(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    if (i > 0) out += i + 1 == first.size() && more == 0 ? " and " : ", ";
    out += std::to_string(first[i]);
  }
  return more > 0 ? out + " and " + std::to_string(more) + " more" : out;
}

DamagedLines find_damaged_lines(const std::filesystem::path& path) {
  MetricsReader reader(path);
  std::string_view line;
  bool whole;
  while (reader.next_line(line, whole)) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || !whole) continue;
    if (line[begin] != '{' || !is_json(line)) reader.note_damaged();
  }
  return reader.damaged_;
}

bool MetricsReader::next(Record& record) {
  std::string_view line;
  bool whole;
  while (next_line(line, whole)) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (parse_record(line, record)) return true;
    if (whole)
      note_damaged();
    else
      torn_ = true;
  }
  return false;
}

}  // namespace mso
