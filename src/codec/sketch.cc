#include "kvpool/codec/sketch.h"

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "kvpool/codec/limits.h"
#include "kvpool/codec/random.h"
#include "kvpool/codec/reduction.h"

namespace kvpool {
namespace {

void check(const SketchOptions& options) {
  const std::size_t unit =
      options.kind == SketchKind::kOrthogonal ? options.head_dim : std::size_t{16};
  if (options.head_dim == 0 || options.head_dim % 16 != 0 || options.head_dim > kMaxHeadDim) {
    throw std::invalid_argument("[Sketch::Sketch] head_dim must be a multiple of 16 from 16 to " +
                                std::to_string(kMaxHeadDim) + ", got " +
                                std::to_string(options.head_dim));
  }
  if (options.n_rows == 0 || options.n_rows % unit != 0) {
    throw std::invalid_argument("[Sketch::Sketch] n_rows must be a positive multiple of " +
                                std::to_string(unit) + ", got " + std::to_string(options.n_rows));
  }
}

// sqrt(pi/2) of independent rows; sqrt(pi) Gamma((d+1)/2) / (sqrt(d) Gamma(d/2)) of orthogonal
// ones, whose quotient of gammas grows by (i+1)/i from i to i+2 and is sqrt(pi)/2 at 2.
double kappa(const SketchOptions& options) {
  if (options.kind == SketchKind::kGaussian) return std::sqrt(std::numbers::pi / 2.0);
  double product = std::numbers::pi / 2.0;
  for (std::size_t i = 2; i < options.head_dim; i += 2) {
    product *= static_cast<double>(i + 1) / static_cast<double>(i);
  }
  return product / std::sqrt(static_cast<double>(options.head_dim));
}

}  // namespace

Sketch::Sketch(const SketchOptions& options)
    : options_(options), factor_(0.0F), root_(std::sqrt(static_cast<float>(options.head_dim))) {
  check(options);
  factor_ = static_cast<float>(kappa(options) / static_cast<double>(options.n_rows));
  if (options.kind == SketchKind::kGaussian) {
    matrix_.resize(options.n_rows * options.head_dim);
    GaussianStream gaussians(stream(options.seed, StreamTag::kSketch));
    for (float& entry : matrix_) entry = gaussians.next();
  } else {
    for (std::size_t j = 0; j < options.n_rows / options.head_dim; ++j) {
      rotations_.emplace_back(options.head_dim, options.seed + 1000 + j);
    }
  }
}

void Sketch::project(const float* x, float* out) const {
  const std::size_t d = options_.head_dim;
  if (options_.kind == SketchKind::kGaussian) {
    for (std::size_t row = 0; row < options_.n_rows; ++row) {
      const float* entries = matrix_.data() + row * d;
      out[row] = lane_sum(0, d, [&](std::size_t i) { return entries[i] * x[i]; });
    }
    return;
  }
  for (std::size_t j = 0; j < rotations_.size(); ++j) {
    float* block = out + j * d;
    rotations_[j].apply(x, block);
    for (std::size_t i = 0; i < d; ++i) block[i] *= root_;
  }
}

void Sketch::back_project(const float* weights, float* out) const {
  const std::size_t d = options_.head_dim;
  for (std::size_t i = 0; i < d; ++i) out[i] = 0.0F;
  if (options_.kind == SketchKind::kGaussian) {
    for (std::size_t row = 0; row < options_.n_rows; ++row) {
      const float* entries = matrix_.data() + row * d;
      for (std::size_t i = 0; i < d; ++i) out[i] += weights[row] * entries[i];
    }
    return;
  }
  float block[kMaxHeadDim];
  for (std::size_t j = 0; j < rotations_.size(); ++j) {
    rotations_[j].invert(weights + j * d, block);
    for (std::size_t i = 0; i < d; ++i) out[i] += root_ * block[i];
  }
}

}  // namespace kvpool
