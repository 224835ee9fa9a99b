#include "io/anyres.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace mso {
namespace {

// Python's int(round(value, 7)): rounds the exact decimal value, then cuts.
int64_t cut_after_rounding(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.7f", value);
  return static_cast<int64_t>(std::strtod(text, nullptr));
}

}  // namespace

PictureSize best_grid(PictureSize picture, const std::vector<PictureSize>& grids) {
  PictureSize best;
  int64_t most_used = 0, least_wasted = INT64_MAX;
  const int64_t all = int64_t{picture.width} * picture.height;
  for (const PictureSize& grid : grids) {
    const double scale = std::min(static_cast<double>(grid.width) / picture.width,
                                  static_cast<double>(grid.height) / picture.height);
    const int64_t used = std::min(
        static_cast<int64_t>(picture.width * scale) * static_cast<int64_t>(picture.height * scale), all);
    const int64_t wasted = int64_t{grid.width} * grid.height - used;
    if (used > most_used || (used == most_used && wasted < least_wasted)) {
      most_used = used;
      least_wasted = wasted;
      best = grid;
    }
  }
  return best;
}

PictureSize fitted_size(PictureSize picture, PictureSize grid) {
  const double across = static_cast<double>(grid.width) / picture.width;
  const double down = static_cast<double>(grid.height) / picture.height;
  if (across < down)
    return {grid.width, static_cast<int>(std::min<double>(std::ceil(picture.height * across), grid.height))};
  return {static_cast<int>(std::min<double>(std::ceil(picture.width * down), grid.width)), grid.height};
}

PictureSize unpadded_features(PictureSize picture, int width, int height) {
  const double shape = static_cast<double>(picture.width) / picture.height;
  if (shape > static_cast<double>(width) / height) {
    const int64_t kept = cut_after_rounding(picture.height * (static_cast<double>(width) / picture.width));
    height -= static_cast<int>((height - kept) / 2 * 2);
  } else {
    const int64_t kept = cut_after_rounding(picture.width * (static_cast<double>(height) / picture.height));
    width -= static_cast<int>((width - kept) / 2 * 2);
  }
  return {width, height};
}

AnyresTiles::AnyresTiles(const AnyresConfig& config, ImageBackend backend)
    : config_(config),
      backend_(backend),
      tile_processor_(config.tile, backend),
      table_(config.tile, backend) {
  if (config_.grids.empty())
    throw Error("image processor: image_grid_pinpoints is empty", config_.tile.type, "", ExitCode::kBadUsage);
  const ImageProcessorConfig& tile = config_.tile;
  whole_ = tile.shortest_edge > 0 ? PictureSize{tile.shortest_edge, tile.shortest_edge}
                                  : PictureSize{tile.width, tile.height};
  side_ = tile.do_center_crop ? tile.crop_height : whole_.height;
  bool squares = true;
  for (const PictureSize& grid : config_.grids)
    squares &= grid.width % side_ == 0 && grid.height % side_ == 0;
  const PictureSize square{side_, side_};
  plain_ = squares && whole_ == square && tile_size() == square && tile.longest_edge == 0;
}

int64_t AnyresTiles::tiles(PictureSize picture) const {
  const PictureSize grid = grid_of(picture);
  return 1 + int64_t{(grid.width + side_ - 1) / side_} * ((grid.height + side_ - 1) / side_);
}

void AnyresTiles::process(const ImageView& image, PictureSize picture, float* out) const {
  const PictureSize grid = grid_of(picture), fitted = fitted_size(picture, grid);
  thread_local std::vector<uint8_t> pixels;
  pixels.resize(size_t{3} * whole_.width * whole_.height);
  resize_window(image, whole_.width, whole_.height, config_.tile.resample,
                {0, 0, whole_.width, whole_.height}, pixels.data(), backend_);
  const ImageView whole(whole_.width, whole_.height, pixels.data());
  if (plain_)
    table_.to_planes({whole.rgb, size_t{3} * side_, side_, side_}, out, side_, size_t(side_) * side_);
  else
    tile_processor_.process(whole, out);

  thread_local std::vector<uint8_t> large;
  large.resize(size_t{3} * fitted.width * fitted.height);
  resize_window(image, fitted.width, fitted.height, config_.tile.resample,
                {0, 0, fitted.width, fitted.height}, large.data(), backend_);
  const ImageView view(fitted.width, fitted.height, large.data());
  out += tile_processor_.size();
  if (plain_)
    cut_plain(view, grid, fitted, out);
  else
    cut_any(view, grid, fitted, out);
}

// Each square is the rectangle of the picture that lies in it, with black around.
void AnyresTiles::cut_plain(const ImageView& image, PictureSize grid, PictureSize fitted, float* out) const {
  const int left = (grid.width - fitted.width) / 2, top = (grid.height - fitted.height) / 2;
  const size_t row = size_t(side_), plane = row * side_, stride = size_t{3} * fitted.width;
  for (int y = 0; y < grid.height; y += side_)
    for (int x = 0; x < grid.width; x += side_, out += 3 * plane) {
      const int from_x = std::max(x, left), to_x = std::min(x + side_, left + fitted.width);
      const int from_y = std::max(y, top), to_y = std::min(y + side_, top + fitted.height);
      const int width = std::max(0, to_x - from_x), height = std::max(0, to_y - from_y);
      if (width < side_ || height < side_) table_.fill_planes(0, side_, side_, out, row, plane);
      if (width > 0 && height > 0)
        table_.to_planes(
            {image.rgb + stride * (from_y - top) + size_t{3} * (from_x - left), stride, width, height},
            out + (from_y - y) * row + (from_x - x), row, plane);
    }
}

// Rare configurations: every square, smaller at the edges where the grid is no multiple of it, is resized and
// cropped like a picture.
void AnyresTiles::cut_any(const ImageView& image, PictureSize grid, PictureSize fitted, float* out) const {
  const int left = (grid.width - fitted.width) / 2, top = (grid.height - fitted.height) / 2;
  for (int y = 0; y < grid.height; y += side_)
    for (int x = 0; x < grid.width; x += side_, out += tile_processor_.size()) {
      Image square;
      square.width = std::min(side_, grid.width - x);
      square.height = std::min(side_, grid.height - y);
      square.rgb.assign(size_t{3} * square.width * square.height, 0);
      const int from_x = std::max(x, left), to_x = std::min(x + square.width, left + fitted.width);
      for (int line = std::max(y, top); line < std::min(y + square.height, top + fitted.height); ++line)
        if (from_x < to_x)
          std::memcpy(square.rgb.data() + (size_t(line - y) * square.width + from_x - x) * 3,
                      image.rgb + (size_t(line - top) * fitted.width + from_x - left) * 3,
                      size_t{3} * (to_x - from_x));
      tile_processor_.process(square, out);
    }
}

}  // namespace mso
