// Codebooks: the scalar quantisers that several formats share.
//
// The coordinates of a randomly rotated vector are close to Gaussian, so one codebook, the
// Lloyd-Max quantiser of N(0, 1), serves every head dimension after scaling by the vector's norm
// over sqrt(d); the exact density's own codebook would be at most 0.5% better. Thresholds are the
// midpoints of neighbouring centroids. The polar angles have codebooks of their own, stored as
// tangents, cosines and sines, so that neither encoding nor decoding calls a trigonometric
// function.
//
// The tables come from tools/generate_codebooks.py. Views of constants: valid for ever, any thread.
//
//   const ScalarCodebook book = normal_codebook(4);
//   const std::uint8_t code = book.nearest(0.3F);   // 9
//   const float value = book.centroids[code];       // 0.388…
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvpool {

struct ScalarCodebook {
  std::size_t bits;
  const float* centroids;   // [2^bits], ascending
  const float* thresholds;  // [2^bits - 1], ascending

  // The number of thresholds strictly below x; x is not a NaN.
  std::uint8_t nearest(float x) const;
};

// bits: 1 to 8.
ScalarCodebook normal_codebook(std::size_t bits);

// The codebook's mean squared error on N(0, 1); bits: 0 to 8, where 0 is the variance itself.
double normal_distortion(std::size_t bits);

struct AngleCodebook {
  std::size_t bits;
  // Thresholds within [0, pi/2]. Of level 1, whose angles go full circle, those inside the first
  // quadrant, [2^bits / 4 - 1] of them; of the others [2^bits - 1].
  const float* tangents;
  const float* cosines;  // [2^bits]
  const float* sines;    // [2^bits]
};

// level: 1 to 4, bits: 1 to 4.
AngleCodebook angle_codebook(std::size_t level, std::size_t bits);

}  // namespace kvpool
