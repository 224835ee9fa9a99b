#include "io/processor_qwen2_vl.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostPixels = int64_t{1} << 40;

std::string described(PictureSize size) {
  return std::to_string(size.width) + "×" + std::to_string(size.height) + " pixels";
}

int factor_of(const Qwen2VlPixels& pixels) {
  return pixels.patch_size * pixels.merge_size;
}

// What a picture or a frame is resized to. `frames`: of a video that caps them, else 0.
PictureSize resized_size(const Qwen2VlPixels& pixels, PictureSize size, int64_t frames) {
  if (size.width <= 0 || size.height <= 0)
    throw Error("picture without pixels", described(size), "delete it", ExitCode::kBadData);
  const int factor = factor_of(pixels);
  if (!pixels.do_resize) {
    if (size.width % factor != 0 || size.height % factor != 0)
      throw Error(
          "picture is no multiple of " + std::to_string(factor) + " pixels each way and do_resize is off",
          described(size), "", ExitCode::kBadData);
    return size;
  }
  int64_t most = pixels.max_pixels;
  if (frames > 0 && pixels.cap_pixels_per_frame) {
    const int64_t all =
        static_cast<int64_t>(static_cast<double>(pixels.max_video_tokens * factor * factor) * 0.9);
    most = std::max(std::min(most, all * pixels.temporal_patch_size / frames),
                    static_cast<int64_t>(static_cast<double>(pixels.min_pixels) * 1.05));
  }
  return smart_resize(size, factor, pixels.min_pixels, most);
}

// Rounds up.
int64_t grid_t(const Qwen2VlPixels& pixels, int64_t frames) {
  return (frames + pixels.temporal_patch_size - 1) / pixels.temporal_patch_size;
}

int64_t patches_of(const Qwen2VlPixels& pixels, PictureSize resized) {
  return int64_t{resized.width / pixels.patch_size} * (resized.height / pixels.patch_size);
}

int64_t floats_of_patch(const Qwen2VlPixels& pixels) {
  return int64_t{3} * pixels.temporal_patch_size * pixels.patch_size * pixels.patch_size;
}

// Writes the patches of one resized picture at places `time` … `last` of a temporal patch. Order:
// [height / merge][width / merge][merge][merge] patches of [channel][time][y][x].
void write_patches(const Qwen2VlPixels& pixels, const PixelTable& table, const uint8_t* rgb, PictureSize size,
                   int time, int last, float* out) {
  const int patch = pixels.patch_size, merge = pixels.merge_size, block = patch * merge;
  const size_t area = size_t(patch) * patch, plane = area * pixels.temporal_patch_size;
  const size_t stride = size_t{3} * size.width, floats = static_cast<size_t>(floats_of_patch(pixels));
  thread_local std::vector<float> one;  // in the cache, while the result is not
  one.resize(3 * area);
  for (int block_y = 0; block_y < size.height; block_y += block)
    for (int block_x = 0; block_x < size.width; block_x += block)
      for (int y = block_y; y < block_y + block; y += patch)
        for (int x = block_x; x < block_x + block; x += patch, out += floats) {
          table.to_planes({rgb + stride * y + size_t{3} * x, stride, patch, patch}, one.data(), patch, area);
          for (int c = 0; c < 3; ++c)
            for (int t = time; t <= last; ++t)
              std::memcpy(out + plane * c + area * t, one.data() + area * c, area * sizeof(float));
        }
}

HostTensor grid_tensor(int64_t t, const Qwen2VlPixels& pixels, PictureSize resized) {
  HostTensor grid = HostTensor::make(DType::kI64, {1, 3});
  grid.data<int64_t>()[0] = t;
  grid.data<int64_t>()[1] = resized.height / pixels.patch_size;
  grid.data<int64_t>()[2] = resized.width / pixels.patch_size;
  return grid;
}

Qwen2VlPixels read_pixels(const ConfigKeys& keys, bool video) {
  Qwen2VlPixels p;
  if (video) {
    p.min_pixels = 128 * 28 * 28;
    p.max_pixels = 28 * 28 * 768;
  }
  keys.read("do_resize", &p.do_resize);
  read_resample(keys, &p.resample);
  read_pixel_settings(keys, &p);
  if (const Json* size = keys.find("size")) {
    const Json* shortest =
        size->is_object() && size->contains("shortest_edge") ? &(*size)["shortest_edge"] : nullptr;
    const Json* longest =
        size->is_object() && size->contains("longest_edge") ? &(*size)["longest_edge"] : nullptr;
    // Folders that give the limits beside it may leave them out here.
    if (shortest && !shortest->is_null()) p.min_pixels = keys.whole("size", *shortest, 1, kMostPixels);
    if (longest && !longest->is_null()) p.max_pixels = keys.whole("size", *longest, 1, kMostPixels);
    if ((!shortest && !keys.find("min_pixels")) || (!longest && !keys.find("max_pixels")))
      keys.wrong("size", "an object with shortest_edge and longest_edge");
  }
  keys.read("min_pixels", 1, kMostPixels, &p.min_pixels);
  keys.read("max_pixels", 1, kMostPixels, &p.max_pixels);
  keys.read("patch_size", 1, 1 << 10, &p.patch_size);
  keys.read("temporal_patch_size", 1, 64, &p.temporal_patch_size);
  keys.read("merge_size", 1, 64, &p.merge_size);
  if (video) {
    keys.read("cap_pixels_per_frame", &p.cap_pixels_per_frame);
    keys.read("max_video_tokens", 1, 1 << 30, &p.max_video_tokens);
    keys.read("min_frames", 1, 1 << 30, &p.min_frames);
    keys.read("max_frames", 1, 1 << 30, &p.max_frames);
    keys.read("do_sample_frames", &p.do_sample_frames);
    double fps = 0;
    keys.read("fps", &fps);
    if (keys.find("fps")) p.fps = fps;
  }
  return p;
}

nlohmann::ordered_json written(const Qwen2VlPixels& p) {
  nlohmann::ordered_json j;
  write_pixel_settings(p, &j);
  j["do_convert_rgb"] = true;
  j["do_resize"] = p.do_resize;
  j["merge_size"] = p.merge_size;
  // Both spellings: transformers 4 reads the first from folders that 5 wrote with `size`.
  j["min_pixels"] = p.min_pixels;
  j["max_pixels"] = p.max_pixels;
  j["patch_size"] = p.patch_size;
  j["resample"] = static_cast<int>(p.resample);
  j["size"] = {{"shortest_edge", p.min_pixels}, {"longest_edge", p.max_pixels}};
  j["temporal_patch_size"] = p.temporal_patch_size;
  return j;
}

}  // namespace

PictureSize smart_resize(PictureSize size, int factor, int64_t min_pixels, int64_t max_pixels) {
  const double width = size.width, height = size.height;
  if (std::max(width, height) / std::min(width, height) > 200)
    throw Error("picture's longer side is more than 200 times the shorter", described(size),
                "cut or delete it", ExitCode::kBadData);
  // Python's round() goes to even, as nearbyint does.
  double new_width = std::nearbyint(width / factor) * factor,
         new_height = std::nearbyint(height / factor) * factor;
  if (new_height * new_width > static_cast<double>(max_pixels)) {
    const double beta = std::sqrt(height * width / static_cast<double>(max_pixels));
    new_height = std::max<double>(factor, std::floor(height / beta / factor) * factor);
    new_width = std::max<double>(factor, std::floor(width / beta / factor) * factor);
  } else if (new_height * new_width < static_cast<double>(min_pixels)) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    new_height = std::ceil(height * beta / factor) * factor;
    new_width = std::ceil(width * beta / factor) * factor;
  }
  if (new_width * new_height > 0x1p31)
    throw Error("picture would be resized to more than 2^31 pixels", described(size),
                "lower min_pixels and max_pixels", ExitCode::kBadData);
  return {static_cast<int>(new_width), static_cast<int>(new_height)};
}

Qwen2VlProcessor::Qwen2VlProcessor(const Qwen2VlConfig& config, ProcessorOptions options)
    : MediaProcessor(std::move(options)),
      config_(config),
      image_table_(config.image, this->options().image_backend),
      video_table_(config.video, ImageBackend::kTorchvision) {}

ProcessedMedia Qwen2VlProcessor::image(const Image& image, PictureSize full) const {
  const Qwen2VlPixels& pixels = config_.image;
  const PictureSize own{image.width, image.height};
  const PictureSize size = resized_size(pixels, full.width > 0 && pixels.do_resize ? full : own, 0);
  thread_local std::vector<uint8_t> resized;
  const uint8_t* rgb = image.rgb.data();
  if (size != own) {
    resized.resize(size_t{3} * size.width * size.height);
    resize_window(image, size.width, size.height, pixels.resample, {0, 0, size.width, size.height},
                  resized.data(), options().image_backend);
    rgb = resized.data();
  }
  const int64_t patches = patches_of(pixels, size);
  ProcessedMedia media;
  HostTensor values = tensor(DType::kF32, {patches, floats_of_patch(pixels)});
  write_patches(pixels, image_table_, rgb, size, 0, pixels.temporal_patch_size - 1, values.data<float>());
  media.tensors.emplace("pixel_values", std::move(values));
  media.tensors.emplace("image_grid_thw", grid_tensor(1, pixels, size));
  media.tokens = {{config_.image_token, patches / (pixels.merge_size * pixels.merge_size), true}};
  return media;
}

ProcessedMedia Qwen2VlProcessor::video(const VideoClip& clip) const {
  const Qwen2VlPixels& pixels = config_.video;
  const int64_t frames = clip.frames(), times = grid_t(pixels, frames);
  if (frames == 0) throw Error("video without frames", family(), "delete it", ExitCode::kBadData);
  const PictureSize own{clip.width, clip.height}, size = resized_size(pixels, own, frames);
  const int64_t patches = patches_of(pixels, size);
  ProcessedMedia media;
  HostTensor values = tensor(DType::kF32, {times * patches, floats_of_patch(pixels)});
  thread_local std::vector<uint8_t> resized;
  resized.resize(size_t{3} * size.width * size.height);
  for (int64_t i = 0; i < frames; ++i) {
    const uint8_t* rgb = clip.frame(i).data();
    if (size != own) {
      resize_window({own.width, own.height, rgb}, size.width, size.height, pixels.resample,
                    {0, 0, size.width, size.height}, resized.data(), ImageBackend::kTorchvision);
      rgb = resized.data();
    }
    float* out = values.data<float>() + i / pixels.temporal_patch_size * patches * floats_of_patch(pixels);
    const int time = static_cast<int>(i % pixels.temporal_patch_size);
    const int last = i == frames - 1 ? pixels.temporal_patch_size - 1 : time;
    write_patches(pixels, video_table_, rgb, size, time, last, out);
  }
  media.tensors.emplace("pixel_values_videos", std::move(values));
  media.tensors.emplace("video_grid_thw", grid_tensor(times, pixels, size));
  if (config_.version_2_5) {
    // VideoMetadata.sampled_fps of transformers, with its 24 for videos of unknown rate.
    double rate = clip.frames_per_second > 0 ? clip.frames_per_second : 24;
    if (clip.frames_per_second > 0 && clip.total_frames > 0)
      rate = static_cast<double>(frames) / static_cast<double>(clip.total_frames) * clip.frames_per_second;
    HostTensor seconds = HostTensor::make(DType::kF32, {1});
    *seconds.data<float>() = static_cast<float>(pixels.temporal_patch_size / rate);
    media.tensors.emplace("second_per_grid_ts", std::move(seconds));
  }
  media.tokens = {{config_.video_token, times * patches / (pixels.merge_size * pixels.merge_size), true}};
  return media;
}

int64_t Qwen2VlProcessor::image_tokens(int width, int height) const {
  const Qwen2VlPixels& pixels = config_.image;
  return patches_of(pixels, resized_size(pixels, {width, height}, 0)) /
         (pixels.merge_size * pixels.merge_size);
}

int64_t Qwen2VlProcessor::video_tokens(int64_t frames, int width, int height) const {
  const Qwen2VlPixels& pixels = config_.video;
  return grid_t(pixels, frames) * patches_of(pixels, resized_size(pixels, {width, height}, frames)) /
         (pixels.merge_size * pixels.merge_size);
}

uint64_t Qwen2VlProcessor::image_bytes(int width, int height) const {
  const Qwen2VlPixels& pixels = config_.image;
  return static_cast<uint64_t>(patches_of(pixels, resized_size(pixels, {width, height}, 0)) * floats_of_patch(pixels)) * sizeof(float);
}

uint64_t Qwen2VlProcessor::video_bytes(int64_t frames, int width, int height) const {
  const Qwen2VlPixels& pixels = config_.video;
  return static_cast<uint64_t>(grid_t(pixels, frames) * patches_of(pixels, resized_size(pixels, {width, height}, frames)) *
                               floats_of_patch(pixels)) * sizeof(float);
}

VideoSampling Qwen2VlProcessor::video_sampling(int64_t frames) const {
  VideoSampling sampling;
  sampling.rule = VideoSampling::Rule::kQwen2Vl;
  if (config_.video.fps) sampling.fps = *config_.video.fps;
  sampling.num_frames = frames;
  sampling.min_frames = config_.video.min_frames;
  sampling.max_frames = config_.video.max_frames;
  sampling.temporal_patch = config_.video.temporal_patch_size;
  return sampling;
}

DecodeOptions Qwen2VlProcessor::decode_options(int width, int height, bool exact) const {
  DecodeOptions options;
  options.exact = exact || !config_.image.do_resize;
  if (options.exact) return options;
  const PictureSize size = resized_size(config_.image, {width, height}, 0);
  options.target_width = size.width;
  options.target_height = size.height;
  return options;
}

std::map<std::string, std::string> Qwen2VlProcessor::files() const {
  const std::string processor_class = config_.version_2_5 ? "Qwen2_5_VLProcessor" : "Qwen2VLProcessor";
  auto image = written(config_.image), video = written(config_.video);
  image["image_processor_type"] = "Qwen2VLImageProcessor";
  image["processor_class"] = processor_class;
  video["video_processor_type"] = "Qwen2VLVideoProcessor";
  if (config_.video.cap_pixels_per_frame) {
    video["cap_pixels_per_frame"] = true;
    video["max_video_tokens"] = config_.video.max_video_tokens;
  }
  video["min_frames"] = config_.video.min_frames;
  video["max_frames"] = config_.video.max_frames;
  video["do_sample_frames"] = config_.video.do_sample_frames;
  if (config_.video.fps) video["fps"] = *config_.video.fps;
  nlohmann::ordered_json processor;
  processor["processor_class"] = processor_class;
  return {{"preprocessor_config.json", to_file(image)},
          {"video_preprocessor_config.json", to_file(video)},
          {"processor_config.json", to_file(processor)}};
}

Qwen2VlConfig read_qwen2_vl_config(const ProcessorFiles& files) {
  files.require_image_processor();
  Qwen2VlConfig config;
  config.version_2_5 = files.family == "qwen2_5_vl";
  config.image = read_pixels(files.image.keys("image processor"), false);
  config.video = read_pixels(files.video.keys("video processor"), true);
  config.image_token = files.special_token("image_token", config.image_token);
  config.video_token = files.special_token("video_token", config.video_token);
  return config;
}

std::unique_ptr<MediaProcessor> load_qwen2_vl_processor(const ProcessorFiles& files,
                                                        const ProcessorOptions& options) {
  return std::make_unique<Qwen2VlProcessor>(read_qwen2_vl_config(files), options);
}

}  // namespace mso
