#include "io/processor_fuyu.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/processor_files.h"

namespace mso {
namespace {

using Json = nlohmann::json;

std::string described(PictureSize size) {
  return std::to_string(size.width) + "×" + std::to_string(size.height) + " pixels";
}

void read_sides(const ConfigKeys& keys, const char* key, int* height, int* width) {
  const Json* size = keys.find(key);
  if (!size) return;
  if (!size->is_object() || !size->contains("height") || !size->contains("width"))
    keys.wrong(key, "an object with height and width");
  *height = static_cast<int>(keys.whole(key, (*size)["height"], 1, 1 << 15));
  *width = static_cast<int>(keys.whole(key, (*size)["width"], 1, 1 << 15));
}

}  // namespace

FuyuProcessor::FuyuProcessor(const FuyuConfig& config, ProcessorOptions options)
    : MediaProcessor(std::move(options)), config_(config), table_(config, this->options().image_backend) {}

PictureSize FuyuProcessor::fitted(PictureSize picture) const {
  if (picture.width <= 0 || picture.height <= 0)
    throw Error("picture without pixels", described(picture), "delete it", ExitCode::kBadData);
  if (picture.width <= config_.width && picture.height <= config_.height) return picture;
  if (!config_.do_resize) {
    if (config_.do_pad)
      throw Error("picture is larger than the processor's size and do_resize is off", described(picture), "",
                  ExitCode::kBadData);
    return picture;
  }
  const double scale = std::min(static_cast<double>(config_.height) / picture.height,
                                static_cast<double>(config_.width) / picture.width);
  const PictureSize size{static_cast<int>(picture.width * scale), static_cast<int>(picture.height * scale)};
  if (size.width == 0 || size.height == 0)
    throw Error("picture is too narrow to resize", described(picture), "cut or delete it",
                ExitCode::kBadData);
  return size;
}

PictureSize FuyuProcessor::patches_of(PictureSize size) const {
  auto whole = [](int length, int patch, int page, bool pad) {
    const int filled = (length + patch - 1) / patch * patch;
    return std::min(filled, pad ? page : length);
  };
  const int width = whole(size.width, config_.patch_width, config_.width, config_.do_pad);
  const int height = whole(size.height, config_.patch_height, config_.height, config_.do_pad);
  if (width % config_.patch_width != 0 || height % config_.patch_height != 0)
    throw Error("picture does not make whole patches", described(size),
                "set do_pad, with size a multiple of patch_size", ExitCode::kBadData);
  return {width / config_.patch_width, height / config_.patch_height};
}

ProcessedMedia FuyuProcessor::image(const Image& image, PictureSize full) const {
  const PictureSize own{image.width, image.height}, size = fitted(full.width > 0 ? full : own);
  const PictureSize patches = patches_of(size);
  thread_local std::vector<uint8_t> resized;
  const uint8_t* rgb = image.rgb.data();
  if (size != own) {
    resized.resize(size_t{3} * size.width * size.height);
    resize_window(image, size.width, size.height, config_.resample, {0, 0, size.width, size.height},
                  resized.data(), options().image_backend);
    rgb = resized.data();
  }

  const int patch_width = config_.patch_width, patch_height = config_.patch_height;
  const int64_t count = int64_t{patches.width} * patches.height;
  HostTensor values = tensor(DType::kF32, {count, int64_t{3} * patch_width * patch_height});
  const auto padding = static_cast<uint8_t>(config_.padding_value);
  const float fill[3] = {table_.at(0, padding), table_.at(1, padding), table_.at(2, padding)};
  float* out = values.data<float>();
  for (int row = 0; row < patches.height; ++row)
    for (int column = 0; column < patches.width; ++column)
      for (int y = row * patch_height; y < (row + 1) * patch_height; ++y) {
        const int x = column * patch_width;
        const int inside = y < size.height ? std::clamp(size.width - x, 0, patch_width) : 0;
        table_.to_pixels(rgb + (size_t(y) * size.width + x) * 3 * (inside > 0), inside, out);
        out += size_t{3} * inside;
        for (int i = inside; i < patch_width; ++i, out += 3) std::copy_n(fill, 3, out);
      }

  HostTensor indices = HostTensor::make(DType::kI64, {image_tokens(size.width, size.height)});
  int64_t* index = indices.data<int64_t>();
  ProcessedMedia media;
  for (int row = 0; row < patches.height; ++row) {
    media.tokens.push_back({config_.image_token, patches.width, true});
    media.tokens.push_back({config_.newline_token, 1});
    for (int column = 0; column < patches.width; ++column) *index++ = int64_t{row} * patches.width + column;
    *index++ = -1;
  }
  *index = -1;
  media.tokens.push_back({config_.begin_token, 1});
  media.tensors.emplace("image_patches", std::move(values));
  media.tensors.emplace("image_patch_indices", std::move(indices));
  return media;
}

int64_t FuyuProcessor::image_tokens(int width, int height) const {
  const PictureSize patches = patches_of(fitted({width, height}));
  return int64_t{patches.height} * (patches.width + 1) + 1;
}

uint64_t FuyuProcessor::image_bytes(int width, int height) const {
  const PictureSize patches = patches_of(fitted({width, height}));
  const uint64_t patch = uint64_t{3} * static_cast<uint64_t>(config_.patch_width * config_.patch_height) * sizeof(float);
  return static_cast<uint64_t>(patches.width) * static_cast<uint64_t>(patches.height) * patch +
         static_cast<uint64_t>(image_tokens(width, height)) * sizeof(int64_t);
}

DecodeOptions FuyuProcessor::decode_options(int width, int height, bool exact) const {
  const PictureSize size = fitted({width, height});
  DecodeOptions options;
  options.exact = exact;
  options.target_width = size.width;
  options.target_height = size.height;
  return options;
}

std::map<std::string, std::string> FuyuProcessor::files() const {
  nlohmann::ordered_json j;
  write_pixel_settings(config_, &j);
  // One number where one will do, as transformers writes it.
  for (const auto& [key, values] :
       {std::pair{"image_mean", config_.image_mean}, std::pair{"image_std", config_.image_std}})
    if (values[0] == values[1] && values[1] == values[2]) j[key] = values[0];
  j["do_pad"] = config_.do_pad;
  j["do_resize"] = config_.do_resize;
  j["image_processor_type"] = "FuyuImageProcessor";
  j["padding_mode"] = "constant";
  j["padding_value"] = static_cast<double>(config_.padding_value);
  j["patch_size"] = {{"height", config_.patch_height}, {"width", config_.patch_width}};
  j["processor_class"] = "FuyuProcessor";
  j["resample"] = static_cast<int>(config_.resample);
  j["size"] = {{"height", config_.height}, {"width", config_.width}};
  nlohmann::ordered_json processor;
  processor["processor_class"] = "FuyuProcessor";
  return {{"preprocessor_config.json", to_file(j)}, {"processor_config.json", to_file(processor)}};
}

FuyuConfig read_fuyu_config(const ProcessorFiles& files) {
  files.require_image_processor();
  FuyuConfig config;
  const ConfigKeys keys = files.image.keys("image processor");
  read_sides(keys, "size", &config.height, &config.width);
  read_sides(keys, "patch_size", &config.patch_height, &config.patch_width);
  keys.read("do_resize", &config.do_resize);
  keys.read("do_pad", &config.do_pad);
  read_resample(keys, &config.resample);
  read_pixel_settings(keys, &config);
  keys.read("padding_value", 0, 255, &config.padding_value);
  std::string mode = "constant";
  keys.read("padding_mode", &mode);
  if (mode != "constant") keys.wrong("padding_mode", "\"constant\"");
  return config;
}

std::unique_ptr<MediaProcessor> load_fuyu_processor(const ProcessorFiles& files,
                                                    const ProcessorOptions& options) {
  return std::make_unique<FuyuProcessor>(read_fuyu_config(files), options);
}

}  // namespace mso
