#include "io/processor_llava_next.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {
namespace {

using Json = nlohmann::json;

constexpr int kLargestSide = 1 << 15;
constexpr const char* kOnevision = "llava_onevision";

// Keys are CLIP's, defaults the family's.
ImageProcessorConfig read_tile(Json json, const std::string& family, const std::string& origin) {
  if (family == kOnevision) {
    if (!json.contains("do_center_crop") || json["do_center_crop"].is_null()) json["do_center_crop"] = false;
    if (!json.contains("size") || json["size"].is_null()) json["size"] = {{"height", 384}, {"width", 384}};
  }
  // Not what LLaVA 1.5 means: here it is about batches.
  json.erase("do_pad");
  json.erase("feature_extractor_type");
  json["image_processor_type"] = "CLIPImageProcessor";
  return parse_image_processor(json.dump(), origin);
}

std::vector<PictureSize> default_grids(const std::string& family) {
  if (family != kOnevision) return {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  std::vector<PictureSize> grids;
  for (int rows = 1; rows <= 6; ++rows)
    for (int columns = 1; columns <= 6; ++columns) grids.push_back({384 * columns, 384 * rows});
  return grids;
}

std::vector<PictureSize> read_grids(const ConfigKeys& keys, const std::string& family) {
  const Json* list = keys.find("image_grid_pinpoints");
  if (!list) return default_grids(family);
  std::vector<PictureSize> grids;
  if (!list->is_array()) keys.wrong("image_grid_pinpoints", "a list of pairs of height and width");
  for (const Json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2)
      keys.wrong("image_grid_pinpoints", "a list of pairs of height and width");
    grids.push_back({static_cast<int>(keys.whole("image_grid_pinpoints", pair[1], 1, kLargestSide)),
                     static_cast<int>(keys.whole("image_grid_pinpoints", pair[0], 1, kLargestSide))});
  }
  return grids;
}

// Python's a // b of positive floats.
int64_t floor_quotient(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  const double whole = std::floor(quotient);
  return static_cast<int64_t>(quotient - whole > 0.5 ? whole + 1 : whole);
}

// A configuration of CLIP's form under the name `type` in `key`.
nlohmann::ordered_json written(const ImageProcessorConfig& config, const char* key, const std::string& type) {
  auto j = nlohmann::ordered_json::parse(to_json(config));
  j.erase("image_processor_type");
  j[key] = type;
  return j;
}

}  // namespace

LlavaNextConfig read_llava_next_config(const ProcessorFiles& files) {
  LlavaNextConfig config;
  config.family = files.family;
  files.require_image_processor();
  config.image.tile = read_tile(files.image.json, config.family, files.image.origin);
  config.image.grids = read_grids(files.image.keys("image processor"), config.family);
  if (config.family != "llava_next") {
    config.video = read_tile(files.video.json, config.family, files.video.origin);
    config.video_token = files.special_token("video_token", config.video_token);
  }
  if (config.family != kOnevision) {
    config.tokens = read_vision_tokens(files);
    return config;
  }
  const ConfigKeys processor = files.processor.keys("processor");
  config.tokens.image_token = files.special_token("image_token", config.tokens.image_token);
  processor.read("vision_feature_select_strategy", &config.tokens.strategy);
  processor.read("num_image_tokens", 1, 1 << 20, &config.num_image_tokens);
  processor.read("vision_aspect_ratio", &config.vision_aspect_ratio);
  if (config.num_image_tokens == 0)
    throw Error("processor: num_image_tokens is missing", files.place(files.processor),
                "set it in processor_config.json to the positions of one tile", ExitCode::kBadUsage);
  return config;
}

LlavaNextProcessor::LlavaNextProcessor(const LlavaNextConfig& config, ProcessorOptions options)
    : MediaProcessor(std::move(options)),
      config_(config),
      tiles_(config.image, this->options().image_backend) {
  if (config_.video) frame_processor_.emplace(*config_.video, ImageBackend::kTorchvision);
  if (config_.family != kOnevision) return;
  const std::string prefix = "anyres_max_", &text = config_.vision_aspect_ratio;
  const std::string digits = text.starts_with(prefix) ? text.substr(prefix.size()) : "";
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos ||
      std::stoi(digits) == 0)
    throw Error("processor: vision_aspect_ratio must be anyres_max_ and a number", text, "",
                ExitCode::kBadUsage);
  most_tiles_ = std::stoi(digits);
}

MediaPlaceholders LlavaNextProcessor::placeholders() const {
  return {config_.tokens.image_token, config_.video ? config_.video_token : "", ""};
}

int64_t LlavaNextProcessor::image_tokens(int width, int height) const {
  const PictureSize tile = tiles_.tile_size(), grid = tiles_.grid_of({width, height});
  const bool onevision = most_tiles_ > 0;
  int across = 0, down = 0;
  int64_t base = 0;
  if (onevision) {
    across = down = static_cast<int>(std::sqrt(static_cast<double>(config_.num_image_tokens)));
    base = config_.num_image_tokens + config_.tokens.dropped_or_added();
  } else {
    across = tile.width / config_.tokens.patch_size;
    down = tile.height / config_.tokens.patch_size;
    base = config_.tokens.count(tile.height, tile.width);
  }
  const PictureSize kept = unpadded_features({width, height}, across * (grid.width / tile.width),
                                             down * (grid.height / tile.height));
  int64_t rows = kept.height, columns = kept.width;
  if (onevision) {
    const double ratio =
        std::sqrt(static_cast<double>(rows * columns) / (int64_t{most_tiles_} * down * down));
    if (ratio > 1.1) {
      rows = floor_quotient(kept.height, ratio);
      columns = floor_quotient(kept.width, ratio);
    }
  }
  return base + rows * columns + rows;  // and a newline after each row
}

ProcessedMedia LlavaNextProcessor::image(const Image& image, PictureSize full) const {
  const PictureSize size = full.width > 0 ? full : PictureSize{image.width, image.height};
  const PictureSize tile = tiles_.tile_size();
  ProcessedMedia media;
  HostTensor pixels = tensor(DType::kF32, {tiles_.tiles(size), 3, tile.height, tile.width});
  tiles_.process(image, size, pixels.data<float>());
  HostTensor sizes = HostTensor::make(DType::kI64, {1, 2});
  sizes.data<int64_t>()[0] = size.height;
  sizes.data<int64_t>()[1] = size.width;
  media.tensors.emplace("pixel_values", std::move(pixels));
  media.tensors.emplace("image_sizes", std::move(sizes));
  media.tokens = {{config_.tokens.image_token, image_tokens(size.width, size.height), true}};
  return media;
}

int64_t LlavaNextProcessor::video_tokens(int64_t frames, int width, int height) const {
  if (!frame_processor_) return MediaProcessor::video_tokens(frames, width, height);
  if (most_tiles_ > 0) {
    const int64_t side = static_cast<int64_t>(std::sqrt(static_cast<double>(config_.num_image_tokens)));
    const int64_t pooled = (side + 1) / 2;
    return frames * pooled * pooled + 1;  // one newline at the end
  }
  const int patch = config_.tokens.patch_size;
  return int64_t{frame_processor_->height() / patch} * (frame_processor_->width() / patch) / 4 * frames;
}

uint64_t LlavaNextProcessor::image_bytes(int width, int height) const {
  return tiles_.size_of({width, height}) * sizeof(float);
}

uint64_t LlavaNextProcessor::video_bytes(int64_t frames, int width, int height) const {
  if (!frame_processor_) return MediaProcessor::video_bytes(frames, width, height);
  return static_cast<uint64_t>(frames) * frame_processor_->size() * sizeof(float);
}

ProcessedMedia LlavaNextProcessor::video(const VideoClip& clip) const {
  if (!frame_processor_) return MediaProcessor::video(clip);
  if (clip.frames() == 0) throw Error("video without frames", family(), "delete it", ExitCode::kBadData);
  ProcessedMedia media;
  HostTensor pixels =
      tensor(DType::kF32, {clip.frames(), 3, frame_processor_->height(), frame_processor_->width()});
  for (int64_t i = 0; i < clip.frames(); ++i)
    frame_processor_->process({clip.width, clip.height, clip.frame(i).data()},
                              pixels.data<float>() + i * frame_processor_->size());
  media.tensors.emplace("pixel_values_videos", std::move(pixels));
  media.tokens = {{config_.video_token, video_tokens(clip.frames(), clip.width, clip.height), true}};
  return media;
}

DecodeOptions LlavaNextProcessor::decode_options(int width, int height, bool exact) const {
  const PictureSize fitted = fitted_size({width, height}, tiles_.grid_of({width, height}));
  DecodeOptions options;
  options.exact = exact;
  options.target_width = std::max(fitted.width, tiles_.tile_size().width);
  options.target_height = std::max(fitted.height, tiles_.tile_size().height);
  return options;
}

std::map<std::string, std::string> LlavaNextProcessor::files() const {
  const bool onevision = most_tiles_ > 0;
  auto image = written(config_.image.tile, "image_processor_type",
                       onevision ? "LlavaOnevisionImageProcessor" : "LlavaNextImageProcessor");
  image["do_pad"] = true;
  auto grids = Json::array();
  for (const PictureSize& grid : config_.image.grids) grids.push_back({grid.height, grid.width});
  image["image_grid_pinpoints"] = grids;
  const char* processor_class = onevision       ? "LlavaOnevisionProcessor"
                                : config_.video ? "LlavaNextVideoProcessor"
                                                : "LlavaNextProcessor";
  image["processor_class"] = processor_class;

  nlohmann::ordered_json processor;
  processor["processor_class"] = processor_class;
  processor["image_token"] = config_.tokens.image_token;
  if (!config_.tokens.strategy.empty()) processor["vision_feature_select_strategy"] = config_.tokens.strategy;
  if (onevision) {
    processor["num_image_tokens"] = config_.num_image_tokens;
    processor["vision_aspect_ratio"] = config_.vision_aspect_ratio;
  } else {
    processor["patch_size"] = config_.tokens.patch_size;
    processor["num_additional_image_tokens"] = config_.tokens.additional;
  }
  std::map<std::string, std::string> files;
  if (config_.video) {
    processor["video_token"] = config_.video_token;
    files["video_preprocessor_config.json"] =
        to_file(written(*config_.video, "video_processor_type",
                        onevision ? "LlavaOnevisionVideoProcessor" : "LlavaNextVideoVideoProcessor"));
  }
  files["preprocessor_config.json"] = to_file(image);
  files["processor_config.json"] = to_file(processor);
  return files;
}

std::unique_ptr<MediaProcessor> load_llava_next_processor(const ProcessorFiles& files,
                                                          const ProcessorOptions& options) {
  return std::make_unique<LlavaNextProcessor>(read_llava_next_config(files), options);
}

}  // namespace mso
