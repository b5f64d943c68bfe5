#include "kvpool/codec/rotation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "codec_fixture.h"
#include "kvpool/codec/codebooks.h"

namespace kvpool {
namespace {

using testing::dot;
using testing::gaussian;
using testing::kHeadDims;
using testing::ramp;

TEST(Rotation, GivesTheReferenceCoordinatesOfARamp) {
  const struct {
    std::size_t d;
    double first[3];
  } cases[] = {{64, {-0.870117, 0.243164, -1.014648}},
               {80, {1.555, 0.177, -0.23225}},
               {96, {0.555266, -0.246238, 0.671586}},
               {128, {-0.415039, -0.236328, -0.230469}}};
  for (const auto& expected : cases) {
    std::vector<float> x = ramp(expected.d);
    Rotation(expected.d, 42).apply(x.data(), x.data());
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(static_cast<double>(x[i]), expected.first[i], 6e-7) << expected.d;
    }
  }
}

TEST(Rotation, InverseGivesTheVectorBack) {
  for (const std::size_t d :
       {std::size_t{16}, std::size_t{112}, std::size_t{576}, std::size_t{64}, std::size_t{80},
        std::size_t{96}, std::size_t{128}, std::size_t{256}}) {
    const Rotation rotation(d, 7);
    const std::vector<float> x = gaussian(d, d);
    std::vector<float> y(d);
    std::vector<float> back(d);
    rotation.apply(x.data(), y.data());
    rotation.invert(y.data(), back.data());
    double error = 0.0;
    for (std::size_t i = 0; i < d; ++i) {
      error += std::pow(static_cast<double>(back[i]) - static_cast<double>(x[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / dot(x.data(), x.data(), d)), 1e-6) << d;
    rotation.invert(y.data(), y.data());
    EXPECT_EQ(y, back) << "in place, " << d;
  }
}

TEST(Rotation, KeepsDotProducts) {
  for (const std::size_t d : kHeadDims) {
    const Rotation rotation(d, 42);
    std::vector<float> a = gaussian(d, 1);
    std::vector<float> b = gaussian(d, 2);
    const double expected = dot(a.data(), b.data(), d);
    const double scale = std::sqrt(dot(a.data(), a.data(), d) * dot(b.data(), b.data(), d));
    rotation.apply(a.data(), a.data());
    rotation.apply(b.data(), b.data());
    EXPECT_NEAR(dot(a.data(), b.data(), d), expected, 1e-6 * scale) << d;
  }
}

TEST(Rotation, SpreadsAOneHotVector) {
  for (const std::size_t d : kHeadDims) {
    std::vector<float> x(d, 0.0F);
    x[3] = 1.0F;
    Rotation(d, 42).apply(x.data(), x.data());
    const auto largest = static_cast<double>(
        *std::max_element(x.begin(), x.end(), [](float a, float b) { return a * a < b * b; }));
    EXPECT_LT(std::fabs(largest) * std::sqrt(static_cast<double>(d)), 5.0) << d;
  }
}

// Rows of a uniformly random orthogonal matrix: Gram-Schmidt on Gaussian rows, whose signs it
// keeps.
std::vector<float> haar(std::size_t d) {
  GaussianStream numbers(stream(42, StreamTag::kHaar));
  std::vector<float> rows(d * d);
  for (std::size_t i = 0; i < d; ++i) {
    float* row = rows.data() + i * d;
    for (std::size_t k = 0; k < d; ++k) row[k] = numbers.next();
    for (std::size_t j = 0; j < i; ++j) {
      const auto along = static_cast<float>(dot(row, rows.data() + j * d, d));
      for (std::size_t k = 0; k < d; ++k) row[k] -= along * rows[j * d + k];
    }
    const auto norm = static_cast<float>(std::sqrt(dot(row, row, d)));
    for (std::size_t k = 0; k < d; ++k) row[k] /= norm;
  }
  return rows;
}

// The codebook's mean squared error on the coordinates of rotated one-hot vectors, the worst input.
template <typename Rotate>
double one_hot_distortion(std::size_t d, Rotate rotate) {
  const ScalarCodebook book = normal_codebook(2);
  const auto root = std::sqrt(static_cast<float>(d));
  double error = 0.0;
  for (std::size_t hot = 0; hot < d; ++hot) {
    std::vector<float> x(d, 0.0F);
    x[hot] = 1.0F;
    const std::vector<float> y = rotate(x);
    for (const float value : y) {
      const auto scaled = static_cast<double>(value * root);
      const double centroid = static_cast<double>(book.centroids[book.nearest(value * root)]);
      error += std::pow(scaled - centroid, 2) / static_cast<double>(d * d);
    }
  }
  return error;
}

TEST(Rotation, QuantisesOneHotVectorsAsWellAsADenseRandomRotation) {
  constexpr std::size_t kDim = 128;
  const std::vector<float> dense = haar(kDim);
  const Rotation rotation(kDim, 42);
  const double oracle = one_hot_distortion(kDim, [&](const std::vector<float>& x) {
    std::vector<float> y(kDim);
    for (std::size_t i = 0; i < kDim; ++i) {
      y[i] = static_cast<float>(dot(dense.data() + i * kDim, x.data(), kDim));
    }
    return y;
  });
  const double ours = one_hot_distortion(kDim, [&](std::vector<float> x) {
    rotation.apply(x.data(), x.data());
    return x;
  });
  EXPECT_NEAR(oracle / normal_distortion(2), 1.0, 0.05);
  EXPECT_LT(ours, 1.05 * oracle) << "one round gives 0.260, two 0.093";
}

TEST(Rotation, SeedsDiffer) {
  std::vector<float> a = ramp(64);
  std::vector<float> b = a;
  Rotation(64, 42).apply(a.data(), a.data());
  Rotation(64, 43).apply(b.data(), b.data());
  EXPECT_NE(a, b);
}

TEST(Rotation, RefusesOtherDimensions) {
  EXPECT_THROW(Rotation(0, 42), std::invalid_argument);
  EXPECT_THROW(Rotation(72, 42), std::invalid_argument);
}

}  // namespace
}  // namespace kvpool
