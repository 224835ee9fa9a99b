// Open files of a source, least recently used ones closed first; one in use stays open through its shared_ptr.
#pragma once

#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/file.h"

namespace mso {

class SourceFiles {
 public:
  SourceFiles(std::filesystem::path folder, int flags) : folder_(std::move(folder)), flags_(flags) {}

  std::filesystem::path path(const std::string& shard) const { return folder_ / shard; }
  std::shared_ptr<FileDescriptor> find(const std::string& shard);  // nullptr: not open
  std::shared_ptr<FileDescriptor> open(const std::string& shard);  // may wait for the storage
  void forget(const std::string& shard);

 private:
  static constexpr size_t kMost = 256;
  const std::filesystem::path folder_;
  const int flags_;
  std::mutex mutex_;
  std::list<std::string> order_;  // most recently used first
  struct Entry {
    std::shared_ptr<FileDescriptor> fd;
    std::list<std::string>::iterator place;
  };
  std::unordered_map<std::string, Entry> open_;
};

}  // namespace mso
