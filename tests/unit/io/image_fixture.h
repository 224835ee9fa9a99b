// Reads tests/unit/io/fixtures/image (made by make_image_fixtures.py).
#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

namespace mso {

inline std::string image_fixture_path(const std::string& name) {
  const char* source = std::getenv("MSO_SRCDIR");
  if (!source) source = std::getenv("srcdir");
  return std::string(source ? source : ".") + "/tests/unit/io/fixtures/image/" + name;
}

inline std::string image_fixture(const std::string& name) {
  return read_file(image_fixture_path(name));
}

inline std::vector<std::vector<std::string>> image_fixture_table(const std::string& name) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(image_fixture(name));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    auto& row = rows.emplace_back();
    for (std::string word; words >> word;) row.push_back(word);
  }
  return rows;
}

}  // namespace mso
