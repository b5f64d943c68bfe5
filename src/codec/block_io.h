// Reading and writing the small pieces of a block: halves and floats at any address.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kvpool/base/float16.h"

namespace kvpool::internal {

static_assert(std::endian::native == std::endian::little, "blocks are little-endian");

template <typename Number>
void store(std::byte* array, std::size_t index, Number value) {
  std::memcpy(array + index * sizeof(Number), &value, sizeof(Number));
}

template <typename Number>
Number load(const std::byte* array, std::size_t index) {
  Number value;
  std::memcpy(&value, array + index * sizeof(Number), sizeof(Number));
  return value;
}

inline void store_half(std::byte* array, std::size_t index, float value) {
  store(array, index, half_from_float(value));
}

inline float load_half(const std::byte* array, std::size_t index) {
  return float_from_half(load<std::uint16_t>(array, index));
}

// The value that a half will hold for `value`. What is too large becomes the largest, and is
// counted. A zero becomes +0: which zero a minimum finds depends on the order of comparisons, and
// so would differ between SIMD widths.
inline float round_to_half(float value, std::size_t* n_clamped) {
  if (value > kLargestHalf || value < -kLargestHalf) {
    ++*n_clamped;
    value = std::clamp(value, -kLargestHalf, kLargestHalf);
  }
  return float_from_half(half_from_float(value + 0.0F));
}

}  // namespace kvpool::internal
