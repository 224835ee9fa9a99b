// What our decoder, resize and image processor make of pictures, for the reference tests.
//   process_image config FILE   reads preprocessor_config.json or processor_config.json, prints what
//   to_json() writes process_image serve         reads commands from standard input, one a line:
//       decode FILE                         width and height (int32), then RGB bytes
//       resize WIDTH HEIGHT FILTER FILE     the same; FILTER as in PIL.Image.Resampling, 0–5
//       process CONFIG FILE                 float32 [3, H, W]; CONFIG: a preprocessor_config.json
//       scaled CONFIG FILE                  the same, JPEG decoded at reduced scale as training does
//     and answers on standard output: length in bytes (int64), then the bytes; for an Error −1, and its
//     message so.
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "io/image.h"
#include "io/image_processor.h"
#include "io/resize.h"

namespace {

void write(const void* data, size_t size) {
  if (std::fwrite(data, 1, size, stdout) != size) throw mso::system_error("cannot write", "standard output");
}

void answer(const std::string& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  write(&size, sizeof size);
  write(bytes.data(), bytes.size());
  std::fflush(stdout);
}

std::string with_size(const mso::Image& image) {
  std::string bytes(8 + image.rgb.size(), '\0');
  const int32_t size[2] = {image.width, image.height};
  std::memcpy(bytes.data(), size, 8);
  std::memcpy(bytes.data() + 8, image.rgb.data(), image.rgb.size());
  return bytes;
}

std::string rest_of(std::istringstream& in) {
  std::string rest;
  std::getline(in >> std::ws, rest);
  return rest;
}

std::string run(const std::string& line) {
  std::istringstream in(line);
  std::string command, config;
  int width = 0, height = 0, filter = 0;
  in >> command;
  if (command == "resize") in >> width >> height >> filter;
  if (command == "process" || command == "scaled") in >> config;
  const std::string path = rest_of(in);
  const std::string file = mso::read_file(path);
  const auto bytes = std::as_bytes(std::span(file));
  mso::DecodeOptions options;
  options.exact = true;
  if (command == "decode") return with_size(mso::decode_image(bytes, path, options));
  if (command == "resize")
    return with_size(mso::resize(mso::decode_image(bytes, path, options), width, height,
                                 static_cast<mso::Resample>(filter)));
  const mso::ImageProcessor processor(mso::parse_image_processor(mso::read_file(config), config));
  if (command == "scaled") {
    const mso::ImageInfo info = mso::probe_image(bytes, path);
    options = processor.decode_options(info.width, info.height);
  }
  std::string out(processor.size() * sizeof(float), '\0');
  processor.process(mso::decode_image(bytes, path, options), reinterpret_cast<float*>(out.data()));
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::strcmp(argv[1], "config") == 0) {
    std::cout << mso::to_json(mso::parse_image_processor(mso::read_file(argv[2]), argv[2]));
    return 0;
  }
  if (argc != 2 || std::strcmp(argv[1], "serve") != 0) {
    std::cerr << "usage: process_image config FILE | process_image serve\n";
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(run(line));
    } catch (const mso::Error& error) {
      const int64_t failed = -1;
      write(&failed, sizeof failed);
      answer(error.what());
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "process_image: " << error.what() << '\n';
  return 1;
}
