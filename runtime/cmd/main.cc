// The program `mso`.
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"

int main(int argc, char** argv) {
  mso::init_logging("info");
  CLI::App app("MegaScale-Omni: train multimodal language models", "mso");
  CLI11_PARSE(app, argc, argv);
  return 0;
}
