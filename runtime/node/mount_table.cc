#include "node/mount_table.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace mso {

namespace {

// "\040" is a blank.
std::string unescaped(std::string_view text) {
  const auto digit = [&](size_t i) { return text[i] >= '0' && text[i] <= '7' ? text[i] - '0' : -1; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && digit(i + 1) >= 0 && digit(i + 2) >= 0 && digit(i + 3) >= 0) {
      out += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> list;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (!word.empty()) list.push_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return list;
}

bool parse_device(std::string_view text, dev_t& device) {
  unsigned major = 0, minor = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return false;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || second.ptr != end) return false;
  device = makedev(major, minor);
  return true;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view text) {
  std::vector<MountEntry> table;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    // ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE SUPEROPTIONS; blanks in names are escaped.
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = words(line.substr(0, dash)), after = words(line.substr(dash + 3));
    MountEntry entry;
    if (before.size() < 6 || after.size() < 2 || !parse_device(before[2], entry.device)) continue;
    entry.point = unescaped(before[4]);
    entry.type = std::string(after[0]);
    // An empty source leaves two blanks.
    if (after.size() > 2) entry.source = unescaped(after[1]);
    entry.super_options = std::string(after.back());
    table.push_back(std::move(entry));
  }
  return table;
}

std::vector<MountEntry> read_mount_table(const std::filesystem::path& root) {
  try {
    return parse_mount_table(read_file(root / "proc/self/mountinfo", 64 << 20));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace mso
