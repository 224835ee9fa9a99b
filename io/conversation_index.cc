#include "io/conversation_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace mso {

namespace {
constexpr size_t kBlock = 1 << 20;
constexpr uint32_t kMaxEntry = 16 << 20;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
}  // namespace

// Finds the entries byte by byte, without building anything.
class ConversationScanner {
 public:
  explicit ConversationScanner(ConversationFile& file) : file_(file) {}

  void feed(char c, uint64_t at) {
    switch (state_) {
      case kBegin:
        if (is_blank(c) || (at < 3 && static_cast<uint8_t>(c) >= 0xbb)) {  // 0xef 0xbb 0xbf: a byte order mark
          lines_seen_ += c == '\n';
          return;
        }
        if (c == '[') {
          state_ = kBetween;
          return;
        }
        file_.lines_ = true;
        blank_ = lines_seen_;
        begin(at);
        state_ = kLine;
        return;
      case kLine:  // in a line that holds something
        if (c == '\n') {
          end(end_);
          state_ = kLineStart;
        } else if (!is_blank(c)) {
          end_ = at + 1;
        }
        return;
      case kLineStart:
        if (c == '\n') ++blank_;
        if (is_blank(c)) return;
        begin(at);
        state_ = kLine;
        return;
      case kBetween:  // of the array, before an entry
        if (is_blank(c)) return;
        if (c == ']' && (file_.starts_.empty() || !comma_)) {
          state_ = kDone;
          return;
        }
        if (c == ']' || c == ',' || c == ':' || c == '}') fail(at);
        begin(at);
        comma_ = false;
        state_ = kEntry;
        [[fallthrough]];
      case kEntry:
        if (in_text_) {
          if (escaped_)
            escaped_ = false;
          else if (c == '\\')
            escaped_ = true;
          else if (c == '"')
            in_text_ = false;
          end_ = at + 1;
          return;
        }
        if (depth_ == 0 && (c == ',' || c == ']')) {
          end(end_);
          comma_ = c == ',';
          state_ = c == ',' ? kBetween : kDone;
          return;
        }
        if (c == '"') in_text_ = true;
        if (c == '{' || c == '[') ++depth_;
        if (c == '}' || c == ']') {
          if (depth_ == 0) fail(at);
          --depth_;
        }
        if (!is_blank(c)) end_ = at + 1;
        return;
      case kDone:
        if (!is_blank(c)) fail(at);
        return;
    }
  }

  void finish(uint64_t size) {
    if (state_ == kLine) end(end_);
    if (state_ == kBetween || state_ == kEntry)
      throw Error("the file of conversations does not end", file_.path_.string() + " at byte " + std::to_string(size),
                  "a ] or an end of a text is missing: was it cut?", ExitCode::kBadData);
  }

 private:
  [[noreturn]] void fail(uint64_t at) const {
    throw Error("the file of conversations is no JSON array", file_.path_.string() + " at byte " + std::to_string(at),
                "one array of objects, or one object a line", ExitCode::kBadData);
  }
  void begin(uint64_t at) {
    if (blank_ > 0 && (file_.blank_lines_.empty() || file_.blank_lines_.back().second != blank_))
      file_.blank_lines_.emplace_back(file_.starts_.size(), blank_);
    file_.starts_.push_back(at);
    end_ = at + 1;
  }
  void end(uint64_t end) {
    file_.sizes_.push_back(static_cast<uint32_t>(std::min<uint64_t>(end - file_.starts_.back(), UINT32_MAX)));
  }

  enum { kBegin, kLine, kLineStart, kBetween, kEntry, kDone } state_ = kBegin;
  ConversationFile& file_;
  uint64_t end_ = 0, blank_ = 0, lines_seen_ = 0;
  size_t depth_ = 0;
  bool in_text_ = false, escaped_ = false, comma_ = false;
};

ConversationFile ConversationFile::open(const std::filesystem::path& path,
                                        const std::function<void(uint64_t, uint64_t)>& progress) {
  ConversationFile file;
  file.path_ = path;
  file.file_ = open_file(path, O_RDONLY);
  struct stat facts {};
  if (::fstat(file.file_.get(), &facts) != 0) throw system_error("cannot look at", path.string());
  if (!S_ISREG(facts.st_mode))
    throw Error("no regular file", path.string(), "give a .json or .jsonl file of conversations", ExitCode::kBadUsage);
  const auto size = static_cast<uint64_t>(facts.st_size);
  ConversationScanner scanner(file);
  std::string block(kBlock, '\0');
  for (uint64_t at = 0; at < size;) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(kBlock, size - at));
    pread_all(file.file_.get(), block.data(), count, at, path);
    for (size_t i = 0; i < count; ++i) scanner.feed(block[i], at + i);
    at += count;
    if (progress) progress(at, size);
  }
  scanner.finish(size);
  return file;
}

std::string ConversationFile::where(uint64_t i) const {
  const std::string name = path_.filename().string();
  if (!lines_) return name + " entry " + std::to_string(i);
  uint64_t blank = 0;
  auto after = std::upper_bound(blank_lines_.begin(), blank_lines_.end(), i,
                                [](uint64_t entry, const auto& known) { return entry < known.first; });
  if (after != blank_lines_.begin()) blank = std::prev(after)->second;
  return name + " line " + std::to_string(i + 1 + blank);
}

ConversationEntry ConversationFile::read(uint64_t i) const {
  const std::string name = where(i);
  const uint32_t size = sizes_.at(i);
  if (size > kMaxEntry)
    throw BadSampleError("too_large", name + ": the entry has " + std::to_string(size) + " bytes or more, at most 16 MiB are read");
  std::string text(size, '\0');
  try {
    pread_all(file_.get(), text.data(), text.size(), starts_[i], path_);
  } catch (const Error& error) {
    throw BadSampleError("read_error", name + ": " + error.what());
  }
  return parse_conversation(text, name);
}

}  // namespace mso
