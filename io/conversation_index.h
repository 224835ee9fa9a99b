// A file of conversations, one JSON array or JSON lines, read entry by entry: only where each begins is held in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "io/conversation.h"

namespace mso {

// Immutable once open; methods may be called from several threads at once.
class ConversationFile {
 public:
  // Goes through the file once. A file that begins with "[" is one array, else every line that is not blank is an entry.
  // Error (kBadData) for an array that does not end or is no JSON between its entries; what is wrong inside an entry shows
  // when it is read. `progress(bytes done, bytes in all)`.
  static ConversationFile open(const std::filesystem::path& path,
                               const std::function<void(uint64_t, uint64_t)>& progress = {});

  uint64_t size() const { return starts_.size(); }
  const std::filesystem::path& path() const { return path_; }
  // "train.jsonl line 18" (counted from 1) or "train.json entry 17" (counted from 0).
  std::string where(uint64_t i) const;
  // Throws BadSampleError, as parse_conversation(), and "read_error".
  ConversationEntry read(uint64_t i) const;

 private:
  friend class ConversationScanner;
  std::filesystem::path path_;
  FileDescriptor file_;
  bool lines_ = false;
  std::vector<uint64_t> starts_;
  std::vector<uint32_t> sizes_;  // UINT32_MAX: that or more
  std::vector<std::pair<uint64_t, uint64_t>> blank_lines_;  // from which entry on → how many blank lines came before
};

}  // namespace mso
