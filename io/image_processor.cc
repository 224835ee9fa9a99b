#include "io/image_processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "io/config_keys.h"

namespace mso {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what, const std::string& on, const std::string& hint = "") {
  throw Error(what, on, hint, ExitCode::kBadUsage);
}

constexpr int kLargestSide = 1 << 15;
// A side of a resized picture, of which only the crop is computed.
constexpr int kLargestResized = 1 << 30;
constexpr const char* kFixedSizeHint = "set do_center_crop with crop_size, or size with height and width";

constexpr const char* kPart = "image processor";

int side(const ConfigKeys& keys, const char* key, const Json& j) {
  if (!j.is_number_integer() || j.get<int64_t>() < 1 || j.get<int64_t>() > kLargestSide)
    keys.wrong(key, "pixels from 1 to " + std::to_string(kLargestSide));
  return j.get<int>();
}

void read_size(const ConfigKeys& keys, bool square_by_default, ImageProcessorConfig* c) {
  const Json* size = keys.find("size");
  if (!size) return;
  c->shortest_edge = c->longest_edge = c->height = c->width = 0;
  if (size->is_number()) {  // files of before 2022
    if (square_by_default)
      c->height = c->width = side(keys, "size", *size);
    else
      c->shortest_edge = side(keys, "size", *size);
    return;
  }
  if (size->is_object() && size->contains("shortest_edge")) {
    c->shortest_edge = side(keys, "size", (*size)["shortest_edge"]);
    if (const auto it = size->find("longest_edge"); it != size->end() && !it->is_null())
      c->longest_edge = side(keys, "size", *it);
  } else if (size->is_object() && size->contains("height") && size->contains("width")) {
    c->height = side(keys, "size", (*size)["height"]);
    c->width = side(keys, "size", (*size)["width"]);
  } else {
    keys.wrong("size", "a number, or hold shortest_edge, or height and width");
  }
}

// The size that a picture gets (get_resize_output_image_size and get_size_with_aspect_ratio of transformers'
// image_transforms.py, which round towards zero, and to even where a longest edge is in force).
void resized_size(const ImageProcessorConfig& c, int in_width, int in_height, int* width, int* height) {
  if (!c.do_resize) {
    *width = in_width;
    *height = in_height;
    return;
  }
  if (c.shortest_edge == 0) {
    *width = c.width;
    *height = c.height;
    return;
  }
  const double shorter = std::min(in_width, in_height), longer = std::max(in_width, in_height);
  int new_short = c.shortest_edge;
  double new_long = c.shortest_edge * longer / shorter;
  if (c.longest_edge > 0 && longer / shorter * c.shortest_edge > c.longest_edge) {
    const double raw = c.longest_edge * shorter / longer;
    new_short = static_cast<int>(std::nearbyint(raw));
    new_long = raw * longer / shorter;
  }
  const int long_side = std::max(1, static_cast<int>(std::min<double>(new_long, kLargestResized)));
  new_short = std::max(1, new_short);
  *width = in_width <= in_height ? new_short : long_side;
  *height = in_width <= in_height ? long_side : new_short;
}

Image padded_to_square(const ImageView& image, const std::array<double, 3>& mean) {
  const int side = std::max(image.width, image.height);
  Image out{side, side, std::vector<uint8_t>(size_t(side) * side * 3)};
  uint8_t colour[3];
  for (int c = 0; c < 3; ++c) colour[c] = static_cast<uint8_t>(static_cast<int>(mean[c] * 255));
  for (size_t i = 0; i < out.rgb.size(); i += 3) std::copy_n(colour, 3, out.rgb.data() + i);
  const int left = (side - image.width) / 2, top = (side - image.height) / 2;
  for (int y = 0; y < image.height; ++y)
    std::copy_n(image.rgb + size_t(y) * image.width * 3, size_t(image.width) * 3,
                out.rgb.data() + (size_t(top + y) * side + left) * 3);
  return out;
}

// Along one side: where the crop begins in the picture, where the picture begins in the crop, how much they
// share. An odd pixel more of black stands before the picture with PIL, behind it with torchvision.
struct Overlap {
  int in_picture, in_crop, length;
  Overlap(int picture, int crop, ImageBackend backend)
      : in_picture(picture > crop ? (picture - crop) / 2 : 0),
        in_crop(crop > picture ? (crop - picture + (backend == ImageBackend::kPil ? 1 : 0)) / 2 : 0),
        length(std::min(picture, crop)) {}
};

}  // namespace

ImageProcessorConfig clip_image_processor(int image_size) {
  ImageProcessorConfig config;
  config.shortest_edge = config.crop_height = config.crop_width = image_size;
  return config;
}

ImageProcessorConfig parse_image_processor(const std::string& text, const std::string& origin) {
  Json root;
  try {
    root = parse_shallow_json<Json>(text);
  } catch (const Json::exception& e) {
    refuse(std::string("not valid JSON (") + e.what() + ")", origin);
  }
  if (root.is_object() && root.contains("image_processor")) root = Json(root["image_processor"]);
  const ConfigKeys keys(root, kPart, origin);

  std::string type = "CLIPImageProcessor";
  for (const char* key : {"feature_extractor_type", "image_processor_type"}) keys.read(key, &type);
  for (const std::string_view suffix : {"Fast", "Pil"})
    if (type.ends_with(suffix)) type.resize(type.size() - suffix.size());
  if (type == "CLIPFeatureExtractor") type = "CLIPImageProcessor";

  ImageProcessorConfig c;
  c.type = type;
  const bool square = type == "SiglipImageProcessor" || type == "ViTImageProcessor";
  if (square) {
    c.shortest_edge = 0;
    c.height = c.width = 224;
    c.do_center_crop = false;
    c.image_mean = c.image_std = {0.5, 0.5, 0.5};
    if (type == "ViTImageProcessor") c.resample = Resample::kBilinear;
  } else if (type != "CLIPImageProcessor" && type != "LlavaImageProcessor") {
    refuse("image processor " + type + " is not available", origin,
           "available: CLIPImageProcessor, LlavaImageProcessor, SiglipImageProcessor, ViTImageProcessor");
  }
  read_size(keys, square, &c);
  keys.read("do_resize", &c.do_resize);
  read_resample(keys, &c.resample);
  keys.read("do_center_crop", &c.do_center_crop);
  if (const Json* j = keys.find("crop_size")) {
    if (j->is_object() && j->contains("height") && j->contains("width")) {
      c.crop_height = side(keys, "crop_size", (*j)["height"]);
      c.crop_width = side(keys, "crop_size", (*j)["width"]);
    } else {
      c.crop_height = c.crop_width = side(keys, "crop_size", *j);
    }
  }
  read_pixel_settings(keys, &c);
  keys.read("do_convert_rgb", &c.do_convert_rgb);
  keys.read("do_pad", &c.do_pad);
  if (c.do_pad && type != "LlavaImageProcessor")
    refuse("image processor: do_pad is available for LlavaImageProcessor only", origin, "it is " + type);
  if (!c.do_center_crop && !(c.do_resize && (c.shortest_edge == 0 || c.do_pad)))
    refuse("image processor: pictures would have varying sizes", origin, kFixedSizeHint);
  return c;
}

bool read_image_processor(const std::filesystem::path& folder, ImageProcessorConfig* config) {
  // transformers 5 nests it in processor_config.json and prefers that one.
  for (const char* name : {"processor_config.json", "preprocessor_config.json"}) {
    const auto path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const std::string text = read_file(path, 1 << 24);
    if (std::string_view(name) == "processor_config.json") {
      const Json root = Json::parse(text, nullptr, false);
      if (!root.is_object() || !root.contains("image_processor")) continue;
    }
    *config = parse_image_processor(text, path.string());
    return true;
  }
  return false;
}

std::string to_json(const ImageProcessorConfig& c) {
  nlohmann::ordered_json j;
  const bool has_crop = c.do_center_crop || c.type == "CLIPImageProcessor" || c.type == "LlavaImageProcessor";
  if (has_crop) j["crop_size"] = {{"height", c.crop_height}, {"width", c.crop_width}};
  if (has_crop) j["do_center_crop"] = c.do_center_crop;
  j["do_convert_rgb"] = c.do_convert_rgb;
  write_pixel_settings(c, &j);
  if (c.type == "LlavaImageProcessor") j["do_pad"] = c.do_pad;
  j["do_resize"] = c.do_resize;
  j["image_processor_type"] = c.type;
  j["resample"] = static_cast<int>(c.resample);
  if (c.shortest_edge == 0)
    j["size"] = {{"height", c.height}, {"width", c.width}};
  else if (c.longest_edge > 0)
    j["size"] = {{"longest_edge", c.longest_edge}, {"shortest_edge", c.shortest_edge}};
  else
    j["size"] = {{"shortest_edge", c.shortest_edge}};
  return j.dump(2) + "\n";
}

ImageProcessor::ImageProcessor(const ImageProcessorConfig& config, ImageBackend backend)
    : config_(config), backend_(backend), table_(config, backend) {
  if (config_.do_center_crop) {
    height_ = config_.crop_height;
    width_ = config_.crop_width;
  } else if (config_.do_resize && config_.shortest_edge == 0) {
    height_ = config_.height;
    width_ = config_.width;
  } else if (config_.do_resize && config_.do_pad) {
    height_ = width_ = config_.shortest_edge;
    if (config_.longest_edge > 0) height_ = width_ = std::min(height_, config_.longest_edge);
  }
  if (height_ <= 0 || width_ <= 0)
    refuse("image processor: pictures would have varying sizes", config_.type, kFixedSizeHint);
}

DecodeOptions ImageProcessor::decode_options(int width, int height, bool exact) const {
  DecodeOptions options;
  options.exact = exact;
  if (!config_.do_resize) return options;
  if (config_.do_pad) {
    // Resized as part of a square of the longer side.
    const int side = std::max(width, height);
    int new_width, new_height;
    resized_size(config_, side, side, &new_width, &new_height);
    options.target_width = static_cast<int>((int64_t{new_width} * width + side - 1) / side);
    options.target_height = static_cast<int>((int64_t{new_height} * height + side - 1) / side);
  } else {
    resized_size(config_, width, height, &options.target_width, &options.target_height);
    const Overlap across(options.target_width, width_, backend_), down(options.target_height, height_, backend_);
    options.used_x = across.in_picture;
    options.used_y = down.in_picture;
    options.used_width = across.length;
    options.used_height = down.length;
  }
  return options;
}

void ImageProcessor::process(const ImageView& image, float* out) const {
  if (config_.do_pad && image.width != image.height)
    process_unpadded(padded_to_square(image, config_.image_mean), out);
  else
    process_unpadded(image, out);
}

void ImageProcessor::process_unpadded(const ImageView& image, float* out) const {
  int new_width, new_height;
  resized_size(config_, image.width, image.height, &new_width, &new_height);
  if (std::max(new_width, new_height) == kLargestResized)
    throw Error("picture is too narrow to resize",
                std::to_string(image.width) + "×" + std::to_string(image.height) + " pixels", "delete it",
                ExitCode::kBadData);
  const Overlap across(new_width, width_, backend_), down(new_height, height_, backend_);
  thread_local std::vector<uint8_t> pixels;
  const size_t stride = size_t{3} * across.length;
  pixels.resize(stride * down.length);
  resize_window(image, new_width, new_height, config_.resample,
                {across.in_picture, down.in_picture, across.length, down.length}, pixels.data(), backend_);

  const size_t row = size_t(width_), plane = row * height_;
  if (across.length < width_ || down.length < height_)  // the crop is larger: black around
    table_.fill_planes(0, width_, height_, out, row, plane);
  table_.to_planes({pixels.data(), stride, across.length, down.length},
                   out + down.in_crop * row + across.in_crop, row, plane);
}

}  // namespace mso
