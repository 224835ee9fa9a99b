#include "node/first_line.h"

#include <fstream>

namespace mso {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace mso
