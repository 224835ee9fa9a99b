// For the reference tests and for looking at one picture by hand: prints what our decoder and processor make
// of it.
//   process_image decode FILE [TARGET_WIDTH TARGET_HEIGHT]   width, height (int32) and RGB bytes on standard
//   output
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "io/image.h"

namespace {

void write(const void* data, size_t size) {
  if (std::fwrite(data, 1, size, stdout) != size) throw mso::system_error("cannot write", "standard output");
}

int decode(int argc, char** argv) {
  const std::string bytes = mso::read_file(argv[2]);
  mso::DecodeOptions options;
  options.exact = argc < 5;
  if (argc >= 5) {
    options.target_width = std::atoi(argv[3]);
    options.target_height = std::atoi(argv[4]);
  }
  const mso::Image image = mso::decode_image(std::as_bytes(std::span(bytes)), argv[2], options);
  const int32_t size[2] = {image.width, image.height};
  write(size, sizeof size);
  write(image.rgb.data(), image.rgb.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc >= 3 && std::strcmp(argv[1], "decode") == 0) return decode(argc, argv);
  std::fprintf(stderr, "usage: process_image decode FILE [TARGET_WIDTH TARGET_HEIGHT]\n");
  return 2;
} catch (const mso::Error& error) {
  std::fprintf(stderr, "process_image: %s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  std::fprintf(stderr, "process_image: %s\n", error.what());
  return 1;
}
