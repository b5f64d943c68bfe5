// lane_sum: the one order in which this library adds up floats that decide bytes.
//
// Sixteen lanes: index i goes to lane i mod 16, each lane adds its terms in ascending order; then
// lanes j and j+8, j and j+4, j and j+2, j and j+1 are added.
//
//   lanes   0  1  2 … 15        what a 512-bit register does with no shuffle in its loop, a
//           └──── +8 ───┘       256-bit one with two accumulators, a 128-bit one with four:
//           └ +4 ┘ …            every SIMD width gives the bits of this scalar text.
//
// No state; any thread; O(n).
//
//   const float squares = lane_sum(0, d, [&](std::size_t i) { return x[i] * x[i]; });
#pragma once

#include <cstddef>

namespace kvpool {

inline constexpr std::size_t kLanes = 16;

// The sum of term(i), a float, over first <= i < last. Lanes follow the index itself, so a range
// that begins anywhere adds up like the whole with zeros outside the range.
template <typename Term>
float lane_sum(std::size_t first, std::size_t last, Term term) {
  float lanes[kLanes] = {};
  for (std::size_t i = first; i < last; ++i) lanes[i % kLanes] += term(i);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace kvpool
