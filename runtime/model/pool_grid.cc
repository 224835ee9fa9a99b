#include "model/pool_grid.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace mso {

namespace {

// [frames, squares, pool, squares, pool, width] view of the part of the grid that is pooled.
at::Tensor squares_of(const at::Tensor& features, int64_t side, int64_t pool) {
  const int64_t squares = side / pool;
  at::Tensor grid = features.unflatten(1, {side, side}).narrow(1, 0, squares * pool).narrow(2, 0, squares * pool);
  return grid.unflatten(2, {squares, pool}).unflatten(1, {squares, pool});
}

// [clips, pairs, 2, width]
at::Tensor pairs_of(const at::Tensor& rows, int64_t length) {
  const int64_t pairs = length / 2;
  return rows.view({-1, length, rows.size(1)}).narrow(1, 0, 2 * pairs).unflatten(1, {pairs, 2});
}

}  // namespace

at::Tensor pool_grid(const at::Tensor& features, int64_t side, int64_t pool) {
  const int64_t width = features.size(2);
  if (pool == 1) return features.reshape({-1, width});
  return squares_of(features, side, pool).mean({2, 4}).reshape({-1, width});
}

void pool_grid_backward(const at::Tensor& gradient, int64_t side, int64_t pool, at::Tensor& features_gradient) {
  const int64_t squares = side / pool, width = gradient.size(1);
  at::Tensor each = (pool == 1 ? gradient : gradient / static_cast<double>(pool * pool))
                        .unflatten(0, {-1, squares, 1, squares, 1});
  squares_of(features_gradient, side, pool).add_(each.expand({-1, squares, pool, squares, pool, width}));
}

at::Tensor pool_pairs(const at::Tensor& rows, int64_t length) {
  return pairs_of(rows, length).mean(2).reshape({-1, rows.size(1)});
}

at::Tensor pool_pairs_backward(const at::Tensor& gradient, int64_t length) {
  const int64_t pairs = length / 2, clips = gradient.size(0) / pairs, width = gradient.size(1);
  at::Tensor rows = at::zeros({clips * length, width}, gradient.options());
  pairs_of(rows, length).copy_((gradient / 2.0).view({clips, pairs, 1, width}).expand({-1, -1, 2, -1}));
  return rows;
}

}  // namespace mso
