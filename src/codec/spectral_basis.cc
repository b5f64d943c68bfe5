#include "kvpool/codec/spectral_basis.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/limits.h"

namespace kvpool {
namespace {

constexpr int kMaxSweeps = 60;
constexpr double kConverged = 1e-26;  // squared: off-diagonal over diagonal

void check(const float* vectors, std::size_t n_vectors, std::size_t head_dim) {
  if (n_vectors < kMinCalibrationVectors) {
    throw std::invalid_argument("[calibrate_spectral] n_vectors must be at least " +
                                std::to_string(kMinCalibrationVectors) + ", got " +
                                std::to_string(n_vectors));
  }
  if (head_dim == 0 || head_dim % 16 != 0 || head_dim > kMaxHeadDim) {
    throw std::invalid_argument("[calibrate_spectral] head_dim must be a multiple of 16 up to " +
                                std::to_string(kMaxHeadDim) + ", got " + std::to_string(head_dim));
  }
  for (std::size_t i = 0; i < n_vectors * head_dim; ++i) {
    if (!std::isfinite(vectors[i])) {
      throw std::invalid_argument("[calibrate_spectral] vectors must be finite, got " +
                                  std::to_string(vectors[i]) + " in vector " +
                                  std::to_string(i / head_dim));
    }
  }
}

// A symmetric matrix [n][n] that rotations make diagonal, and the rotations' product as rows.
class Jacobi {
 public:
  Jacobi(std::vector<double> matrix, std::size_t n)
      : n_(n), matrix_(std::move(matrix)), axes_(n * n, 0.0) {
    for (std::size_t i = 0; i < n; ++i) axes_[i * n + i] = 1.0;
  }

  void run() {
    for (int sweep = 0; sweep < kMaxSweeps && !converged(); ++sweep) {
      for (std::size_t p = 0; p + 1 < n_; ++p) {
        for (std::size_t q = p + 1; q < n_; ++q) rotate(p, q);
      }
    }
  }

  double eigenvalue(std::size_t i) const { return matrix_[i * n_ + i]; }
  const double* axis(std::size_t i) const { return axes_.data() + i * n_; }

 private:
  bool converged() const {
    double diagonal = 0.0;
    double rest = 0.0;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) {
        const double square = matrix_[i * n_ + j] * matrix_[i * n_ + j];
        (i == j ? diagonal : rest) += square;
      }
    }
    return rest <= kConverged * diagonal;
  }

  void rotate(std::size_t p, std::size_t q) {
    const double off = matrix_[p * n_ + q];
    if (off == 0.0) return;
    const double theta = (matrix_[q * n_ + q] - matrix_[p * n_ + p]) / (2.0 * off);
    const double magnitude = 1.0 / (std::fabs(theta) + std::sqrt(theta * theta + 1.0));
    const double tangent = theta < 0.0 ? -magnitude : magnitude;
    const double cosine = 1.0 / std::sqrt(tangent * tangent + 1.0);
    const double sine = tangent * cosine;
    double* row_p = matrix_.data() + p * n_;
    double* row_q = matrix_.data() + q * n_;
    turn(row_p, row_q, cosine, sine);
    for (std::size_t i = 0; i < n_; ++i) {
      double* row = matrix_.data() + i * n_;
      const double a = row[p];
      const double b = row[q];
      row[p] = cosine * a - sine * b;
      row[q] = sine * a + cosine * b;
    }
    row_p[q] = 0.0;
    row_q[p] = 0.0;
    turn(axes_.data() + p * n_, axes_.data() + q * n_, cosine, sine);
  }

  void turn(double* a, double* b, double cosine, double sine) const {
    for (std::size_t i = 0; i < n_; ++i) {
      const double x = a[i];
      const double y = b[i];
      a[i] = cosine * x - sine * y;
      b[i] = sine * x + cosine * y;
    }
  }

  std::size_t n_;
  std::vector<double> matrix_;
  std::vector<double> axes_;
};

std::vector<double> mean_of(const float* vectors, std::size_t n_vectors, std::size_t d) {
  std::vector<double> mean(d, 0.0);
  for (std::size_t v = 0; v < n_vectors; ++v) {
    for (std::size_t i = 0; i < d; ++i) mean[i] += static_cast<double>(vectors[v * d + i]);
  }
  for (double& value : mean) value /= static_cast<double>(n_vectors);
  return mean;
}

std::vector<double> covariance_of(const float* vectors, std::size_t n_vectors, std::size_t d,
                                  const std::vector<double>& mean) {
  std::vector<double> covariance(d * d, 0.0);
  std::vector<double> centred(d);
  for (std::size_t v = 0; v < n_vectors; ++v) {
    for (std::size_t i = 0; i < d; ++i) {
      centred[i] = static_cast<double>(vectors[v * d + i]) - mean[i];
    }
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j <= i; ++j) covariance[i * d + j] += centred[i] * centred[j];
    }
  }
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      covariance[i * d + j] /= static_cast<double>(n_vectors);
      covariance[j * d + i] = covariance[i * d + j];
    }
  }
  return covariance;
}

double sign_of_largest(const double* axis, std::size_t d) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < d; ++i) {
    if (std::fabs(axis[i]) > std::fabs(axis[largest])) largest = i;
  }
  return axis[largest] < 0.0 ? -1.0 : 1.0;
}

}  // namespace

SpectralBasis calibrate_spectral(const float* vectors, std::size_t n_vectors,
                                 std::size_t head_dim) {
  check(vectors, n_vectors, head_dim);
  const std::vector<double> mean = mean_of(vectors, n_vectors, head_dim);
  Jacobi jacobi(covariance_of(vectors, n_vectors, head_dim, mean), head_dim);
  jacobi.run();

  std::vector<std::size_t> order(head_dim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return jacobi.eigenvalue(a) > jacobi.eigenvalue(b);
  });

  SpectralBasis basis;
  basis.axes.reserve(head_dim * head_dim);
  for (const std::size_t i : order) {
    const double* axis = jacobi.axis(i);
    const double sign = sign_of_largest(axis, head_dim);
    for (std::size_t j = 0; j < head_dim; ++j) {
      basis.axes.push_back(static_cast<float>(sign * axis[j]));
    }
    // Rounding may leave what is 0 a little below it.
    basis.eigenvalues.push_back(static_cast<float>(std::max(0.0, jacobi.eigenvalue(i))));
  }
  for (const double value : mean) basis.mean.push_back(static_cast<float>(value));
  return basis;
}

std::size_t effective_channels(const float* eigenvalues, std::size_t head_dim) {
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < head_dim; ++i) {
    const auto value = static_cast<double>(eigenvalues[i]);
    sum += value;
    squares += value * value;
  }
  if (squares == 0.0) return 1;
  const auto effective = static_cast<std::size_t>(std::ceil(sum * sum / squares));
  return std::clamp(effective, std::size_t{1}, head_dim - 1);
}

void spend_bits(const float* eigenvalues, std::size_t head_dim, std::size_t mean_bits,
                std::uint8_t* bits) {
  std::fill(bits, bits + head_dim, std::uint8_t{0});
  for (std::size_t spent = 0; spent < mean_bits * head_dim; ++spent) {
    std::size_t best = head_dim;
    double best_gain = 0.0;
    for (std::size_t i = 0; i < head_dim; ++i) {
      if (bits[i] == 8) continue;
      const double drop = normal_distortion(bits[i]) - normal_distortion(bits[i] + std::size_t{1});
      const double gain = static_cast<double>(eigenvalues[i]) * drop;
      if (best < head_dim && gain <= best_gain) continue;
      best = i;
      best_gain = gain;
    }
    ++bits[best];
  }
}

}  // namespace kvpool
