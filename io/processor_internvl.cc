#include "io/processor_internvl.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {
namespace {

using Json = nlohmann::json;

constexpr int kMostTiles = 1 << 10;

int64_t tiles_in(PictureSize grid) {
  const int64_t tiles = int64_t{grid.width} * grid.height;
  return tiles > 1 ? tiles + 1 : 1;
}

InternVlPixels read_pixels(const ConfigKeys& keys) {
  InternVlPixels p;
  keys.read("do_resize", &p.do_resize);
  read_resample(keys, &p.resample);
  read_pixel_settings(keys, &p);
  if (const Json* size = keys.find("size")) {
    if (size->is_object() && size->contains("height") && size->contains("width")) {
      p.height = static_cast<int>(keys.whole("size", (*size)["height"], 1, 1 << 14));
      p.width = static_cast<int>(keys.whole("size", (*size)["width"], 1, 1 << 14));
    } else if (size->is_number()) {
      p.height = p.width = static_cast<int>(keys.whole("size", *size, 1, 1 << 14));
    } else {
      keys.wrong("size", "an object with height and width");
    }
  }
  return p;
}

nlohmann::ordered_json written(const InternVlPixels& p) {
  nlohmann::ordered_json j;
  write_pixel_settings(p, &j);
  j["do_convert_rgb"] = true;
  j["do_resize"] = p.do_resize;
  j["resample"] = static_cast<int>(p.resample);
  j["size"] = {{"height", p.height}, {"width", p.width}};
  return j;
}

}  // namespace

PictureSize tile_grid(PictureSize picture, PictureSize tile, int min_tiles, int max_tiles) {
  const double shape = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  double least = std::numeric_limits<double>::infinity();
  PictureSize best{1, 1};
  // By number of tiles, and for one number by columns.
  for (int tiles = min_tiles; tiles <= max_tiles; ++tiles)
    for (int columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const int rows = tiles / columns;
      const double difference = std::fabs(shape - static_cast<double>(columns) / rows);
      // Of equal shapes the larger, unless it has more than twice the picture's pixels.
      if (difference < least || (difference == least && area > 0.5 * tile.width * tile.height * tiles)) {
        least = difference;
        best = {columns, rows};
      }
    }
  return best;
}

InternVlProcessor::InternVlProcessor(const InternVlConfig& config, ProcessorOptions options)
    : MediaProcessor(std::move(options)),
      config_(config),
      image_table_(config.image, this->options().image_backend),
      video_table_(config.video, ImageBackend::kTorchvision) {}

PictureSize InternVlProcessor::grid_of(PictureSize picture) const {
  if (picture.width <= 0 || picture.height <= 0)
    throw Error("picture without pixels", family(), "delete it", ExitCode::kBadData);
  return tile_grid(picture, {config_.image.width, config_.image.height}, config_.min_patches,
                   config_.max_patches);
}

ProcessedMedia InternVlProcessor::image(const Image& image, PictureSize full) const {
  const PictureSize grid = grid_of(full.width > 0 ? full : PictureSize{image.width, image.height});
  const int width = config_.image.width, height = config_.image.height;
  const size_t row = size_t(width), plane = row * height;
  const int64_t tiles = tiles_in(grid);
  HostTensor pixels = tensor(DType::kF32, {tiles, 3, height, width});
  float* out = pixels.data<float>();
  thread_local std::vector<uint8_t> resized;
  auto resize_to = [&](int columns, int rows) {
    resized.resize(size_t{3} * width * columns * height * rows);
    resize_window(image, width * columns, height * rows, config_.image.resample,
                  {0, 0, width * columns, height * rows}, resized.data(), options().image_backend);
    const size_t stride = size_t{3} * width * columns;
    for (int y = 0; y < rows; ++y)
      for (int x = 0; x < columns; ++x, out += 3 * plane)
        image_table_.to_planes(
            {resized.data() + stride * height * y + size_t{3} * width * x, stride, width, height}, out, row,
            plane);
  };
  resize_to(grid.width, grid.height);
  if (tiles > 1) resize_to(1, 1);
  ProcessedMedia media;
  media.tensors.emplace("pixel_values", std::move(pixels));
  media.tokens = {{config_.start_token, 1},
                  {config_.image_token, tiles * config_.image_seq_length, true},
                  {config_.end_token, 1}};
  return media;
}

ProcessedMedia InternVlProcessor::video(const VideoClip& clip) const {
  const int64_t frames = clip.frames();
  if (frames == 0) throw Error("video without frames", family(), "delete it", ExitCode::kBadData);
  const InternVlPixels& p = config_.video;
  if (!p.do_resize && (clip.width != p.width || clip.height != p.height))
    throw Error("frames are not of the processor's size and do_resize is off",
                std::to_string(clip.width) + "×" + std::to_string(clip.height) + " pixels", "",
                ExitCode::kBadData);
  const size_t row = size_t(p.width), plane = row * p.height;
  HostTensor pixels = tensor(DType::kF32, {frames, 3, p.height, p.width});
  thread_local std::vector<uint8_t> resized;
  resized.resize(size_t{3} * p.width * p.height);
  ProcessedMedia media;
  for (int64_t i = 0; i < frames; ++i) {
    resize_window({clip.width, clip.height, clip.frame(i).data()}, p.width, p.height, p.resample,
                  {0, 0, p.width, p.height}, resized.data(), ImageBackend::kTorchvision);
    video_table_.to_planes({resized.data(), size_t{3} * p.width, p.width, p.height},
                           pixels.data<float>() + 3 * plane * i, row, plane);
    media.tokens.push_back({(i > 0 ? "\nFrame" : "Frame") + std::to_string(i + 1) + ": ", 1, false, true});
    media.tokens.push_back({config_.start_token, 1});
    media.tokens.push_back({config_.image_token, config_.image_seq_length, true});
    media.tokens.push_back({config_.end_token, 1});
  }
  media.tensors.emplace("pixel_values", std::move(pixels));
  return media;
}

int64_t InternVlProcessor::image_tokens(int width, int height) const {
  return 2 + tiles_in(grid_of({width, height})) * config_.image_seq_length;
}

int64_t InternVlProcessor::video_tokens(int64_t frames, int, int) const {
  return frames * (2 + config_.image_seq_length);
}

uint64_t InternVlProcessor::image_bytes(int width, int height) const {
  return static_cast<uint64_t>(tiles_in(grid_of({width, height}))) * 3 * sizeof(float) *
         static_cast<uint64_t>(config_.image.width) * static_cast<uint64_t>(config_.image.height);
}

uint64_t InternVlProcessor::video_bytes(int64_t frames, int, int) const {
  return static_cast<uint64_t>(frames) * 3 * sizeof(float) * static_cast<uint64_t>(config_.video.width) *
         static_cast<uint64_t>(config_.video.height);
}

VideoSampling InternVlProcessor::video_sampling(int64_t frames) const {
  VideoSampling sampling = MediaProcessor::video_sampling(frames);
  sampling.rule = VideoSampling::Rule::kMiddle;
  return sampling;
}

DecodeOptions InternVlProcessor::decode_options(int width, int height, bool exact) const {
  const PictureSize grid = grid_of({width, height});
  DecodeOptions options;
  options.exact = exact;
  options.target_width = config_.image.width * grid.width;
  options.target_height = config_.image.height * grid.height;
  return options;
}

std::map<std::string, std::string> InternVlProcessor::files() const {
  auto image = written(config_.image), video = written(config_.video);
  image["image_processor_type"] = "GotOcr2ImageProcessor";
  image["processor_class"] = "InternVLProcessor";
  image["crop_to_patches"] = true;
  image["min_patches"] = config_.min_patches;
  image["max_patches"] = config_.max_patches;
  video["video_processor_type"] = "InternVLVideoProcessor";
  nlohmann::ordered_json processor;
  processor["image_seq_length"] = config_.image_seq_length;
  processor["processor_class"] = "InternVLProcessor";
  return {{"preprocessor_config.json", to_file(image)},
          {"video_preprocessor_config.json", to_file(video)},
          {"processor_config.json", to_file(processor)}};
}

InternVlConfig read_internvl_config(const ProcessorFiles& files) {
  files.require_image_processor();
  InternVlConfig config;
  const ConfigKeys image = files.image.keys("image processor");
  config.image = read_pixels(image);
  config.video = read_pixels(files.video.keys("video processor"));
  image.read("min_patches", 1, kMostTiles, &config.min_patches);
  image.read("max_patches", 1, kMostTiles, &config.max_patches);
  files.processor.keys("processor").read("image_seq_length", 1, 1 << 20, &config.image_seq_length);
  config.start_token = files.special_token("start_image_token", config.start_token);
  config.end_token = files.special_token("end_image_token", config.end_token);
  config.image_token = files.special_token("context_image_token", config.image_token);
  config.video_token = files.special_token("video_token", config.video_token);
  return config;
}

std::unique_ptr<MediaProcessor> load_internvl_processor(const ProcessorFiles& files,
                                                        const ProcessorOptions& options) {
  return std::make_unique<InternVlProcessor>(read_internvl_config(files), options);
}

}  // namespace mso
