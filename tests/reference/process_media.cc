// What our processors make of pictures and clips, for the reference tests. Reads commands from standard
// input, one a line:
//   load NAME BACKEND FOLDER    a processor by name; BACKEND: pil or torchvision
//   image NAME FILE             a picture, decoded at full size
//   scaled NAME FILE            the same, a JPEG decoded at reduced scale as training does
//   video NAME FILE             a clip: "WIDTH HEIGHT FRAMES FPS TOTAL\n", then RGB frames
//   tokens NAME WIDTH HEIGHT    image_tokens()
//   video-tokens NAME FRAMES WIDTH HEIGHT
//   files NAME FOLDER           writes what files() holds
//   ids TOKENIZER FILE          ids of the text in FILE
//   time NAME REPEATS FILE      seconds of CPU per picture, without decoding
// Answers on standard output: length in bytes (int64), then a line of JSON and the tensors' bytes; for an
// Error its message under "error".
#include <cstdio>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "io/image.h"
#include "io/processor.h"
#include "io/tokenizer.h"

namespace {

using Json = nlohmann::json;

std::map<std::string, std::unique_ptr<mso::MediaProcessor>> processors;
std::shared_ptr<mso::BufferPool> pool = std::make_shared<mso::BufferPool>(uint64_t{1} << 30);

void write(const void* data, size_t size) {
  if (std::fwrite(data, 1, size, stdout) != size) throw mso::system_error("cannot write", "standard output");
}

void answer(const std::string& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  write(&size, sizeof size);
  write(bytes.data(), bytes.size());
  std::fflush(stdout);
}

std::string line(const Json& json) {
  return json.dump() + "\n";
}

std::string packed(mso::ProcessedMedia media) {
  Json json;
  std::string bytes;
  json["tensors"] = Json::array();
  for (auto& [name, tensor] : media.tensors) {
    json["tensors"].push_back(
        {{"name", name}, {"dtype", mso::name_of(tensor.dtype)}, {"shape", tensor.shape}});
    bytes.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  json["text"] = mso::text_of(media.tokens);
  json["features"] = media.feature_count();
  int64_t tokens = 0;
  for (const auto& run : media.tokens)
    if (!run.text) tokens += run.count;
  json["tokens"] = tokens;
  for (auto& [name, tensor] : media.tensors) pool->give_back(std::move(tensor));
  return line(json) + bytes;
}

mso::VideoClip read_clip(const std::string& path) {
  const std::string file = mso::read_file(path);
  std::istringstream in(file);
  mso::VideoClip clip;
  int64_t frames = 0;
  in >> clip.width >> clip.height >> frames >> clip.frames_per_second >> clip.total_frames;
  const char* pixels = file.data() + file.find('\n') + 1;
  clip.rgb.assign(pixels, file.data() + file.size());
  for (int64_t i = 0; i < frames; ++i) {
    clip.timestamps_s.push_back(static_cast<double>(i));
    clip.frame_indices.push_back(i);
  }
  return clip;
}

std::string run(const std::string& command_line) {
  std::istringstream in(command_line);
  std::string command, name, path;
  in >> command >> name;
  auto rest = [&] {
    std::getline(in >> std::ws, path);
    return path;
  };
  if (command == "load") {
    std::string backend;
    in >> backend;
    mso::ProcessorOptions options;
    options.image_backend = backend == "pil" ? mso::ImageBackend::kPil : mso::ImageBackend::kTorchvision;
    options.pool = pool;
    processors[name] = mso::load_processor(rest(), options);
    const auto placeholders = processors[name]->placeholders();
    return line({{"family", processors[name]->family()},
                 {"image", placeholders.image},
                 {"video", placeholders.video}});
  }
  if (command == "ids") {
    const auto tokenizer = mso::load_tokenizer(name);
    return line({{"ids", tokenizer->encode(mso::read_file(rest()))}});
  }
  const auto found = processors.find(name);
  if (found == processors.end()) throw mso::Error("no processor is loaded by this name", name);
  const mso::MediaProcessor& processor = *found->second;
  if (command == "tokens" || command == "video-tokens") {
    int64_t frames = 0;
    int width = 0, height = 0;
    if (command == "video-tokens") in >> frames;
    in >> width >> height;
    return line({{"tokens", command == "tokens" ? processor.image_tokens(width, height)
                                                : processor.video_tokens(frames, width, height)}});
  }
  if (command == "files") {
    const std::filesystem::path folder = rest();
    for (const auto& [file, text] : processor.files()) mso::write_file_durably(folder / file, text);
    return line(Json::object());
  }
  if (command == "video") return packed(processor.video(read_clip(rest())));
  int repeats = 0;
  if (command == "time") in >> repeats;
  const std::string file = mso::read_file(rest());
  const auto bytes = std::as_bytes(std::span(file));
  const mso::ImageInfo info = mso::probe_image(bytes, path);
  mso::DecodeOptions options;
  options.exact = true;
  if (command == "scaled") options = processor.decode_options(info.width, info.height, false);
  const mso::Image image = mso::decode_image(bytes, path, options);
  if (command == "time") {
    const std::clock_t start = std::clock();
    for (int i = 0; i < repeats; ++i)
      for (auto& [tensor_name, tensor] : processor.image(image).tensors) pool->give_back(std::move(tensor));
    return line({{"seconds", static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / repeats}});
  }
  return packed(processor.image(image, {info.width, info.height}));
}

}  // namespace

int main() try {
  for (std::string text; std::getline(std::cin, text);) {
    try {
      answer(run(text));
    } catch (const mso::Error& error) {
      answer(line({{"error", error.what()}, {"code", static_cast<int>(error.exit_code())}}));
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "process_media: " << error.what() << '\n';
  return 1;
}
