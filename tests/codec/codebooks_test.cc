#include "kvpool/codec/codebooks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace kvpool {
namespace {

const std::vector<std::vector<double>>& published_halves() {
  static const std::vector<std::vector<double>> halves = {
      {0.797885},
      {0.452780, 1.510418},
      {0.245094, 0.756005, 1.343909, 2.151946},
      {0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590},
      {0.065890, 0.198052, 0.331378, 0.466700, 0.604934, 0.747136, 0.894565, 1.048783, 1.211804,
       1.386340, 1.576228, 1.787233, 2.028728, 2.317739, 2.691120, 3.260732}};
  return halves;
}

TEST(NormalCodebook, HasThePublishedCentroids) {
  for (std::size_t bits = 1; bits <= 5; ++bits) {
    const std::vector<double>& half = published_halves()[bits - 1];
    const ScalarCodebook book = normal_codebook(bits);
    ASSERT_EQ(book.bits, bits);
    for (std::size_t i = 0; i < half.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(book.centroids[half.size() + i]), half[i], 6e-7);
    }
  }
}

TEST(NormalCodebook, OfManyBitsHasTheKnownSums) {
  const double expected[3][3] = {{0.033410, 3.744101, 42.506492},
                                 {0.016828, 4.189694, 86.516300},
                                 {0.008446, 4.603536, 174.758768}};
  for (std::size_t bits = 6; bits <= 8; ++bits) {
    const std::size_t half = std::size_t{1} << (bits - 1);
    const float* positive = normal_codebook(bits).centroids + half;
    double sum = 0.0;
    for (std::size_t i = 0; i < half; ++i) sum += static_cast<double>(positive[i]);
    EXPECT_NEAR(static_cast<double>(positive[0]), expected[bits - 6][0], 6e-7);
    EXPECT_NEAR(static_cast<double>(positive[half - 1]), expected[bits - 6][1], 6e-7);
    EXPECT_NEAR(sum, expected[bits - 6][2], 5e-6);
  }
}

TEST(NormalCodebook, IsSymmetricAndItsThresholdsAreMidpoints) {
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    const ScalarCodebook book = normal_codebook(bits);
    const std::size_t n = std::size_t{1} << bits;
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(book.centroids[i], -book.centroids[n - 1 - i]);
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const double middle =
          (static_cast<double>(book.centroids[i]) + static_cast<double>(book.centroids[i + 1])) /
          2.0;
      EXPECT_NEAR(static_cast<double>(book.thresholds[i]), middle, 5e-7);
      EXPECT_LT(book.centroids[i], book.thresholds[i]);
      EXPECT_LT(book.thresholds[i], book.centroids[i + 1]);
    }
    EXPECT_EQ(book.thresholds[n / 2 - 1], 0.0F);
  }
}

TEST(NormalCodebook, CodeIsTheNumberOfThresholdsStrictlyBelow) {
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    const ScalarCodebook book = normal_codebook(bits);
    const std::size_t n = std::size_t{1} << bits;
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const float threshold = book.thresholds[i];
      EXPECT_EQ(book.nearest(threshold), i);
      EXPECT_EQ(book.nearest(std::nextafter(threshold, 9.0F)), i + 1);
    }
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(book.nearest(book.centroids[i]), i);
    EXPECT_EQ(book.nearest(-1e30F), 0U);
    EXPECT_EQ(book.nearest(std::numeric_limits<float>::max()), n - 1);
  }
}

// The error of the codebook as it stands, from integrals of the normal density in closed form.
double exact_distortion(const ScalarCodebook& book) {
  const auto density = [](double x) {
    return std::exp(-x * x / 2.0) / std::sqrt(2.0 * std::numbers::pi);
  };
  const auto above = [](double x) { return std::erfc(x / std::numbers::sqrt2) / 2.0; };
  const std::size_t n = std::size_t{1} << book.bits;
  double total = 0.0;
  for (std::size_t i = n / 2; i < n; ++i) {
    const auto c = static_cast<double>(book.centroids[i]);
    const double low = i == n / 2 ? 0.0 : static_cast<double>(book.thresholds[i - 1]);
    const bool last = i + 1 == n;
    const double high = last ? 40.0 : static_cast<double>(book.thresholds[i]);
    const double mass = above(low) - (last ? 0.0 : above(high));
    const double first = density(low) - (last ? 0.0 : density(high));
    const double second = mass + low * density(low) - (last ? 0.0 : high * density(high));
    total += second - 2.0 * c * first + c * c * mass;
  }
  return 2.0 * total;
}

TEST(NormalCodebook, HasTheExactDistortion) {
  const double published[] = {1.0,       0.363380,  0.117482,  0.034548, 0.009501,
                              2.5047e-3, 6.4424e-4, 1.6348e-4, 4.1185e-5};
  EXPECT_EQ(normal_distortion(0), 1.0);
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    EXPECT_NEAR(normal_distortion(bits) / published[bits], 1.0, 6e-5) << bits;
    EXPECT_NEAR(exact_distortion(normal_codebook(bits)), normal_distortion(bits), 1e-9) << bits;
    const double power = std::pow(4.0, -static_cast<double>(bits));
    EXPECT_LT(normal_distortion(bits), std::numbers::sqrt3 * std::numbers::pi / 2.0 * power);
    EXPECT_GT(normal_distortion(bits), power);
  }
}

double angle(const AngleCodebook& book, std::size_t code) {
  return std::atan2(static_cast<double>(book.sines[code]), static_cast<double>(book.cosines[code]));
}

TEST(AngleCodebook, HasThePublishedAngles) {
  const double two_bits[3][4] = {{0.309756, 0.633980, 0.936816, 1.261040},
                                 {0.426250, 0.674385, 0.896411, 1.144547},
                                 {0.524214, 0.705909, 0.864887, 1.046582}};
  const double three_bits[3][4] = {{.188450, .379996, .548255, .707230},
                                   {.307517, .473176, .606068, .726747},
                                   {.425761, .555650, .654797, .742870}};
  for (std::size_t level = 2; level <= 4; ++level) {
    for (std::size_t code = 0; code < 4; ++code) {
      EXPECT_NEAR(angle(angle_codebook(level, 2), code), two_bits[level - 2][code], 6e-7);
      EXPECT_NEAR(angle(angle_codebook(level, 3), code), three_bits[level - 2][code], 6e-7);
    }
  }
}

TEST(AngleCodebook, IsSymmetricAndItsThresholdsAreMidpoints) {
  for (std::size_t level = 2; level <= 4; ++level) {
    for (std::size_t bits = 1; bits <= 4; ++bits) {
      const AngleCodebook book = angle_codebook(level, bits);
      const std::size_t n = std::size_t{1} << bits;
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_NEAR(angle(book, i) + angle(book, n - 1 - i), std::numbers::pi / 2.0, 3e-7);
      }
      for (std::size_t i = 0; i + 1 < n; ++i) {
        EXPECT_NEAR(std::atan(static_cast<double>(book.tangents[i])),
                    (angle(book, i) + angle(book, i + 1)) / 2.0, 3e-7);
      }
    }
  }
}

TEST(AngleCodebook, FirstLevelIsUniform) {
  for (std::size_t bits = 1; bits <= 4; ++bits) {
    const AngleCodebook book = angle_codebook(1, bits);
    const std::size_t n = std::size_t{1} << bits;
    const double sector = 2.0 * std::numbers::pi / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double expected = (static_cast<double>(i) + 0.5) * sector;
      EXPECT_NEAR(static_cast<double>(book.cosines[i]), std::cos(expected), 6e-8);
      EXPECT_NEAR(static_cast<double>(book.sines[i]), std::sin(expected), 6e-8);
    }
    for (std::size_t i = 0; i + 1 < n / 4; ++i) {
      EXPECT_NEAR(std::atan(static_cast<double>(book.tangents[i])),
                  static_cast<double>(i + 1) * sector, 1e-7);
    }
  }
}

}  // namespace
}  // namespace kvpool
