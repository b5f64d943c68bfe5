// SpectralBasis: what spectral and spectral_wf know of a head's vectors before they encode any.
//
// The mean and the principal axes of calibration vectors, one basis for each layer, head and side.
// The eigenvectors come from Jacobi's method in double, in a fixed order and with a fixed choice of
// sign (the entry of largest magnitude is positive), so equal vectors give an equal basis.
//
// SpectralBasis owns its arrays; SpectralView is non-owning. Immutable: any number of threads.
// calibrate_spectral: O(n d^2 + d^3).
//
//   const SpectralBasis basis = calibrate_spectral(vectors, n_vectors, 128);   // [n_vectors][128]
//   const auto codec = make_codec({.format = parse_format("spectral3"), …, .spectral =
//   basis.view()});
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvpool {

struct SpectralView {
  const float* axes = nullptr;         // [head_dim][head_dim]: row i is eigenvector i
  const float* mean = nullptr;         // [head_dim]
  const float* eigenvalues = nullptr;  // [head_dim], descending, not negative
};

struct SpectralBasis {
  std::vector<float> axes;
  std::vector<float> mean;
  std::vector<float> eigenvalues;

  SpectralView view() const { return {axes.data(), mean.data(), eigenvalues.data()}; }
};

// Fewer vectors say too little of a covariance.
inline constexpr std::size_t kMinCalibrationVectors = 512;

// vectors: [n_vectors][head_dim]. Throws std::invalid_argument for fewer than
// kMinCalibrationVectors, for a head_dim that is no multiple of 16 up to kMaxHeadDim, and for
// values that are not finite.
SpectralBasis calibrate_spectral(const float* vectors, std::size_t n_vectors, std::size_t head_dim);

// The effective number of dimensions, (sum of eigenvalues)^2 over the sum of their squares, rounded
// up and kept within 1 and head_dim - 1.
std::size_t effective_channels(const float* eigenvalues, std::size_t head_dim);

// bits: [head_dim]. Spends mean_bits * head_dim bits, each where it lowers the error most: on the
// channel with the largest eigenvalue times the codebook's drop in distortion; 8 are the most of
// one channel, the first of equals goes first.
void spend_bits(const float* eigenvalues, std::size_t head_dim, std::size_t mean_bits,
                std::uint8_t* bits);

}  // namespace kvpool
