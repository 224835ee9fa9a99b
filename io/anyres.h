// The tiling of LLaVA-NeXT and LLaVA-OneVision ("anyres"): a picture becomes one tile of the whole and the
// tiles of the grid that suits its shape best. Formulas of transformers: select_best_resolution and
// get_patch_output_size of image_processing_utils.py, _get_unpadded_features of processing_llava_next.py.
#pragma once

#include <cstdint>
#include <vector>

#include "io/image_processor.h"
#include "io/processor.h"

namespace mso {

// Of `grids`, the one into which the picture fits with most of its pixels, then with least waste. Never
// empty.
PictureSize best_grid(PictureSize picture, const std::vector<PictureSize>& grids);

// The size of the picture scaled to fit into `grid`, at least one pixel each way.
PictureSize fitted_size(PictureSize picture, PictureSize grid);

// Rows and columns of patch features of the grid that are left when the padding is cut off again. `width` and
// `height`: features of the whole grid.
PictureSize unpadded_features(PictureSize picture, int width, int height);

struct AnyresConfig {
  // For each tile: size, crop, pixels; CLIPImageProcessor's keys, `type` the family's own.
  ImageProcessorConfig tile;
  std::vector<PictureSize> grids;  // image_grid_pinpoints, in pixels

  bool operator==(const AnyresConfig&) const = default;
};

class AnyresTiles {
 public:
  // Error (kBadUsage) without grids and for tiles whose sizes vary.
  AnyresTiles(const AnyresConfig& config, ImageBackend backend);

  const AnyresConfig& config() const { return config_; }
  PictureSize tile_size() const { return {tile_processor_.width(), tile_processor_.height()}; }
  PictureSize grid_of(PictureSize picture) const { return best_grid(picture, config_.grids); }
  // The one of the whole included.
  int64_t tiles(PictureSize picture) const;
  size_t size_of(PictureSize picture) const { return tiles(picture) * tile_processor_.size(); }  // floats

  // `out`: float32 [tiles, 3, height, width] of tile_size(); `picture`: the size by which the grid goes.
  void process(const ImageView& image, PictureSize picture, float* out) const;

 private:
  void cut_plain(const ImageView& image, PictureSize grid, PictureSize fitted, float* out) const;
  void cut_any(const ImageView& image, PictureSize grid, PictureSize fitted, float* out) const;

  AnyresConfig config_;
  ImageBackend backend_;
  ImageProcessor tile_processor_;
  PixelTable table_;
  PictureSize whole_;   // what the tile of the whole picture is first resized to
  int side_ = 0;        // of the squares that the grid is cut into
  bool plain_ = false;  // squares need neither resize nor crop
};

}  // namespace mso
