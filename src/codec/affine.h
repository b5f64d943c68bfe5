// Affine quantisation of a group: value = scale * code + zero, both halves, codes 0 to L.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "block_io.h"

namespace kvpool::internal {

struct Affine {
  float scale;
  float zero;

  // What 2^bits codes need to span [least, most]. The scale reaches from the rounded zero, so that
  // rounding the zero costs no range; where the zero was rounded above `most`, it is negative.
  static Affine fit(float least, float most, float largest_code, std::size_t* n_clamped) {
    const float zero = round_to_half(least, n_clamped);
    return {round_to_half((most - zero) / largest_code, n_clamped), zero};
  }

  std::uint8_t code(float x, float largest_code) const {
    if (scale == 0.0F) return 0;
    return static_cast<std::uint8_t>(
        std::clamp(std::nearbyint((x - zero) / scale), 0.0F, largest_code));
  }

  float value(std::uint8_t code) const { return scale * static_cast<float>(code) + zero; }
};

inline float largest_code(std::size_t bits) {
  return static_cast<float>((std::size_t{1} << bits) - 1);
}

}  // namespace kvpool::internal
