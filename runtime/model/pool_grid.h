// Average pooling of the patch grid of video frames (transformers' LlavaNextVideoPooler, spatial_pool_mode "average"), and of
// pairs of rows (the AvgPool1d behind Qwen2-Audio's encoder).
#pragma once

#include <ATen/core/Tensor.h>

namespace mso {

// features [frames, side · side, width], row-major grids → [frames · (side / pool)², width]: the mean of each pool × pool
// square. A border that fills no square is left out, as in AvgPool2d.
at::Tensor pool_grid(const at::Tensor& features, int64_t side, int64_t pool);
// features_gradient += what `gradient` of pool_grid's result is to its input.
void pool_grid_backward(const at::Tensor& gradient, int64_t side, int64_t pool, at::Tensor& features_gradient);

// rows [clips · length, width] → [clips · (length / 2), width]: the mean of each two rows; an odd last one is left out.
at::Tensor pool_pairs(const at::Tensor& rows, int64_t length);
at::Tensor pool_pairs_backward(const at::Tensor& gradient, int64_t length);  // → the gradient of rows

}  // namespace mso
