// Slurm's configuration as far as a check of the plugin needs it.
#include <glob.h>
#include <strings.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "node/node_check.h"

namespace mso {

namespace fs = std::filesystem;

namespace {

std::string without_comment(std::string line) {
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '#' && (i == 0 || line[i - 1] != '\\')) {
      line.resize(i);
      break;
    }
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
  return line;
}

void collect(const fs::path& file, const std::string& plugin_name, int depth, std::vector<PlugstackLine>& found) {
  if (depth > 8) return;  // a file that includes itself
  std::ifstream in(file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(without_comment(line));
    std::string kind, what;
    if (!(words >> kind >> what)) continue;
    if (kind == "include") {
      const fs::path pattern = fs::path(what).is_absolute() ? fs::path(what) : file.parent_path() / what;
      glob_t matches = {};
      if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0)
        for (size_t i = 0; i < matches.gl_pathc; ++i) collect(matches.gl_pathv[i], plugin_name, depth + 1, found);
      ::globfree(&matches);
    } else if ((kind == "optional" || kind == "required") && fs::path(what).filename() == plugin_name) {
      PlugstackLine one{file.string() + ":" + std::to_string(number), kind == "required", what, {}};
      for (std::string argument; words >> argument;) one.arguments.push_back(argument);
      found.push_back(std::move(one));
    }
  }
}

}  // namespace

std::vector<PlugstackLine> find_plugstack_lines(const fs::path& plugstack, const std::string& plugin_name) {
  std::vector<PlugstackLine> found;
  collect(plugstack, plugin_name, 0, found);
  return found;
}

std::string slurm_conf_value(const fs::path& slurm_conf, const std::string& key) {
  std::ifstream in(slurm_conf);
  std::string value;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(without_comment(line));
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals == key.size() && strncasecmp(word.c_str(), key.c_str(), equals) == 0) value = word.substr(equals + 1);
    }
  }
  return value;
}

std::string slurm_version_text(unsigned int number) {
  const auto two = [](unsigned int part) { return (part < 10 ? "0" : "") + std::to_string(part); };
  return std::to_string(number >> 16 & 255) + "." + two(number >> 8 & 255) + "." + std::to_string(number & 255);
}

}  // namespace mso
