#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace mso {

namespace {
std::string join(const std::string& what_failed, const std::string& on, const std::string& hint) {
  std::string text = what_failed;
  if (!on.empty()) text += ": " + on;
  if (!hint.empty()) text += " (hint: " + hint + ")";
  return text;
}

// What a person can do about it, where the number alone tells.
const char* usual_hint(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "the storage is full (df -h, df -i): make room, or give another place";
    case EDQUOT:
      return "your quota is used up: make room, or give another place";
    case EROFS:
      return "the storage is read-only: give another place";
    case EACCES:
    case EPERM:
      return "give a place that you may use, or change its permissions";
    default:
      return "";
  }
}
}  // namespace

Error::Error(std::string what_failed, std::string on, std::string hint, ExitCode code)
    : std::runtime_error(join(what_failed, on, hint)),
      what_failed_(std::move(what_failed)),
      on_(std::move(on)),
      hint_(std::move(hint)),
      code_(code) {}

Error system_error(const std::string& what_failed, const std::string& on, int error_number,
                   const std::string& hint) {
  if (error_number == 0) error_number = errno;
  return Error(what_failed, on + ": " + std::strerror(error_number), hint.empty() ? usual_hint(error_number) : hint);
}

}  // namespace mso
