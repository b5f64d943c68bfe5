#include "kvpool/codec/rotation.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "kvpool/codec/random.h"

namespace kvpool {
namespace {

// Unnormalised, in place; n a power of two.
void walsh_hadamard(float* x, std::size_t n) {
  for (std::size_t half = 1; half < n; half *= 2) {
    for (std::size_t start = 0; start < n; start += 2 * half) {
      for (std::size_t i = start; i < start + half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

void multiply(const float* x, const std::vector<float>& signs, float* y) {
  for (std::size_t i = 0; i < signs.size(); ++i) y[i] = x[i] * signs[i];
}

}  // namespace

Rotation::Rotation(std::size_t dim, std::uint64_t seed)
    : dim_(dim), n_rows_(0), row_len_(dim & (~dim + 1)), first_signs_(dim), second_signs_(dim) {
  if (dim == 0 || dim % 16 != 0) {
    throw std::invalid_argument("[Rotation::Rotation] dim must be a positive multiple of 16, got " +
                                std::to_string(dim));
  }
  n_rows_ = dim / row_len_;
  fill_signs(stream(seed, StreamTag::kFirstSigns), dim, first_signs_.data());
  fill_signs(stream(seed, StreamTag::kSecondSigns), dim, second_signs_.data());
}

void Rotation::mix(float* x) const {
  const float scale = 1.0F / std::sqrt(static_cast<float>(row_len_));
  for (std::size_t row = 0; row < n_rows_; ++row) {
    walsh_hadamard(x + row * row_len_, row_len_);
  }
  for (std::size_t i = 0; i < dim_; ++i) x[i] *= scale;
  if (n_rows_ == 1) return;
  const float factor = 2.0F / static_cast<float>(n_rows_);
  for (std::size_t column = 0; column < row_len_; ++column) {
    float sum = 0.0F;
    for (std::size_t row = 0; row < n_rows_; ++row) sum += x[row * row_len_ + column];
    const float mirrored = factor * sum;
    for (std::size_t row = 0; row < n_rows_; ++row) x[row * row_len_ + column] -= mirrored;
  }
}

void Rotation::apply(const float* x, float* y) const {
  multiply(x, first_signs_, y);
  mix(y);
  multiply(y, second_signs_, y);
  mix(y);
}

void Rotation::invert(const float* y, float* x) const {
  if (x != y) {
    for (std::size_t i = 0; i < dim_; ++i) x[i] = y[i];
  }
  mix(x);
  multiply(x, second_signs_, x);
  mix(x);
  multiply(x, first_signs_, x);
}

}  // namespace kvpool
