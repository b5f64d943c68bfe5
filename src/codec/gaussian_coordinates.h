// What turboquant_mse and turboquant_prod share: a vector's norm, its rotated direction scaled to
// coordinates that are nearly N(0, 1), and their codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kvpool/codec/reduction.h"
#include "kvpool/codec/rotation.h"

namespace kvpool::internal {

inline float norm_of(const float* x, std::size_t d) {
  return std::sqrt(lane_sum(0, d, [&](std::size_t i) { return x[i] * x[i]; }));
}

// coordinates = sqrt(d) R x / |x|, [d]. Returns |x|; where that is 0 (x is, or its squares
// underflow to it) the coordinates are 0 too.
inline float gaussian_coordinates(const Rotation& rotation, const float* x, float* coordinates) {
  const std::size_t d = rotation.dim();
  const float norm = norm_of(x, d);
  if (norm == 0.0F) {
    std::fill(coordinates, coordinates + d, 0.0F);
    return 0.0F;
  }
  rotation.apply(x, coordinates);
  const float factor = std::sqrt(static_cast<float>(d)) / norm;
  for (std::size_t i = 0; i < d; ++i) coordinates[i] *= factor;
  return norm;
}

}  // namespace kvpool::internal
