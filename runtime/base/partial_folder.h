// A folder that appears under its name when it is whole: written as NAME.partial beside it. What is unfinished is
// removed, at once where writing fails (on a full disk it would keep the disk full), by the next writer after a kill.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/file.h"

namespace mso {

class PartialFolder {
 public:
  // Makes TARGET.partial, empty, for this process alone. Error (kBadUsage) where another process writes there, or where it
  // holds files whose names are not `ours`: those stay.
  PartialFolder(const std::filesystem::path& target, const std::function<bool(const std::string& name)>& ours);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Renames it to the target, where nothing may stand any more but an empty folder.
  void publish();

 private:
  std::filesystem::path target_, path_;
  FileDescriptor lock_;
  bool published_ = false;
};

}  // namespace mso
