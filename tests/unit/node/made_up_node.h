// Files of a made-up node below a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mso {

class MadeUpNode {
 public:
  MadeUpNode() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mso-node.XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~MadeUpNode() {
    std::error_code failed;
    std::filesystem::remove_all(root_, failed);
  }
  MadeUpNode(const MadeUpNode&) = delete;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path operator/(const std::string& path) const { return root_ / path; }
  void write(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace mso
