// mso-node-facts: reads what the node is made of and prints it, or keeps it for the plugin. Started once by slurmd's plugin.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "node/node_facts_read.h"

namespace {

constexpr const char* kUsage =
    "usage: mso-node-facts [--write [FILE]]\n"
    "Prints this node's CPUs, GPUs and NVMe drives; with --write keeps them in FILE (default /run/mso/node-facts).\n";

int run(int argc, char** argv) {
  if (argc > 1 && (std::strcmp(argv[1], "-h") == 0 || std::strcmp(argv[1], "--help") == 0)) {
    std::cout << kUsage;
    return 0;
  }
  if (argc > 3 || (argc > 1 && std::strcmp(argv[1], "--write") != 0)) {
    std::cerr << kUsage;
    return static_cast<int>(mso::ExitCode::kBadUsage);
  }
  const std::string text = mso::format_node_facts(mso::read_node_facts());
  if (argc == 1) {
    std::cout << text;
    return 0;
  }
  const std::filesystem::path file = argc > 2 ? argv[2] : mso::kNodeFactsFile;
  ::umask(022);  // read by every user's runtime, written by root alone
  std::filesystem::create_directories(file.parent_path());
  mso::write_file_durably(file, text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "mso-node-facts: " << error.what() << "\n";
    return 1;
  }
}
