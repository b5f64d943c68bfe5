#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "codec_fixture.h"
#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/rotation.h"
#include "kvpool/codec/spectral_basis.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::dot;
using testing::gaussian;

// Vectors whose covariance has eigenvalues 1/i along rotated axes, around a mean.
std::vector<float> skewed(std::size_t n, std::size_t d, std::uint64_t seed) {
  std::vector<float> rows = gaussian(n * d, seed);
  const Rotation axes(d, 77);
  for (std::size_t row = 0; row < n; ++row) {
    float* x = rows.data() + row * d;
    for (std::size_t i = 0; i < d; ++i) x[i] /= std::sqrt(static_cast<float>(i + 1));
    axes.apply(x, x);
    for (std::size_t i = 0; i < d; ++i) x[i] += 0.125F * static_cast<float>(i % 5);
  }
  return rows;
}

CodecOptions options(const char* format, const SpectralBasis& basis, std::size_t d) {
  return {.format = parse_format(format), .shape = {d, 32}, .spectral = basis.view()};
}

TEST(CalibrateSpectral, FindsOrthonormalAxesThatMakeTheCovarianceDiagonal) {
  constexpr std::size_t kDim = 48;
  constexpr std::size_t kCount = 600;
  const std::vector<float> vectors = skewed(kCount, kDim, 1);
  const SpectralBasis basis = calibrate_spectral(vectors.data(), kCount, kDim);
  std::vector<float> y(kCount * kDim);
  for (std::size_t v = 0; v < kCount; ++v) {
    std::vector<float> centred(kDim);
    for (std::size_t i = 0; i < kDim; ++i) centred[i] = vectors[v * kDim + i] - basis.mean[i];
    for (std::size_t i = 0; i < kDim; ++i) {
      y[v * kDim + i] = static_cast<float>(dot(basis.axes.data() + i * kDim, centred.data(), kDim));
    }
  }
  for (std::size_t i = 0; i < kDim; ++i) {
    for (std::size_t j = 0; j < kDim; ++j) {
      const double product = dot(basis.axes.data() + i * kDim, basis.axes.data() + j * kDim, kDim);
      EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-6);
      double covariance = 0.0;
      for (std::size_t v = 0; v < kCount; ++v) {
        covariance += static_cast<double>(y[v * kDim + i]) * static_cast<double>(y[v * kDim + j]);
      }
      const double expected = i == j ? static_cast<double>(basis.eigenvalues[i]) : 0.0;
      EXPECT_NEAR(covariance / kCount, expected, 2e-6);
    }
    if (i > 0) {
      EXPECT_LE(basis.eigenvalues[i], basis.eigenvalues[i - 1]);
    }
    const float* axis = basis.axes.data() + i * kDim;
    EXPECT_GT(*std::max_element(axis, axis + kDim, [](float a, float b) { return a * a < b * b; }),
              0.0F);
  }
}

TEST(CalibrateSpectral, RefusesTooLittleOrBadInput) {
  std::vector<float> vectors(std::size_t{512} * 16, 1.0F);
  EXPECT_THROW(calibrate_spectral(vectors.data(), 511, 16), std::invalid_argument);
  EXPECT_THROW(calibrate_spectral(vectors.data(), 512, 12), std::invalid_argument);
  vectors[100] = std::nanf("");
  EXPECT_THROW(calibrate_spectral(vectors.data(), 512, 16), std::invalid_argument);
}

TEST(CalibrateSpectral, OfConstantVectorsHasNoVarianceAndCodecsStayExact) {
  const std::vector<float> vectors(std::size_t{512} * 32, 1.5F);
  const SpectralBasis basis = calibrate_spectral(vectors.data(), 512, 32);
  EXPECT_EQ(basis.eigenvalues[0], 0.0F);
  for (const char* format : {"spectral3", "spectral_wf3"}) {
    CodecFixture fixture(options(format, basis, 32));
    for (const float value : fixture.round_trip(std::vector<float>(std::size_t{32} * 32, 1.5F))) {
      ASSERT_EQ(value, 1.5F) << "the mean has gain 0";
    }
  }
}

TEST(EffectiveChannels, IsTheParticipationRatio) {
  const float equal[] = {2.0F, 2.0F, 2.0F, 2.0F};
  EXPECT_EQ(effective_channels(equal, 4), 3U) << "at most all but one";
  const float one[] = {5.0F, 0.0F, 0.0F, 0.0F};
  EXPECT_EQ(effective_channels(one, 4), 1U);
  const float two[] = {3.0F, 1.0F, 0.0F, 0.0F};  // 16 / 10
  EXPECT_EQ(effective_channels(two, 4), 2U);
  const float none[] = {0.0F, 0.0F};
  EXPECT_EQ(effective_channels(none, 2), 1U);
}

TEST(SpendBits, SpendsAllBitsWhereTheyHelpMost) {
  constexpr std::size_t kDim = 128;
  std::vector<float> eigenvalues(kDim);
  for (std::size_t i = 0; i < kDim; ++i) eigenvalues[i] = 1.0F / static_cast<float>(i + 1);
  std::vector<std::uint8_t> bits(kDim);
  spend_bits(eigenvalues.data(), kDim, 3, bits.data());
  std::size_t total = 0;
  for (std::size_t i = 0; i < kDim; ++i) {
    total += bits[i];
    if (i > 0) {
      EXPECT_LE(bits[i], bits[i - 1]);
    }
  }
  EXPECT_EQ(total, 3 * kDim);
  // No bit moved from one channel to another lowers the error.
  for (std::size_t i = 0; i < kDim; ++i) {
    for (std::size_t j = 0; j < kDim; ++j) {
      if (i == j || bits[i] == 0 || bits[j] == 8) continue;
      const double loss = static_cast<double>(eigenvalues[i]) *
                          (normal_distortion(bits[i] - 1U) - normal_distortion(bits[i]));
      const double gain = static_cast<double>(eigenvalues[j]) *
                          (normal_distortion(bits[j]) - normal_distortion(bits[j] + 1U));
      EXPECT_LE(gain, loss * (1.0 + 1e-12));
    }
  }
  const std::vector<float> equal(16, 1.0F);
  spend_bits(equal.data(), 16, 8, bits.data());
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(bits[i], 8U);
}

// Eigenvalues 1/i, known axes. There is no closed form; the numbers were measured by another
// implementation on another sample, and few channels carry most of the energy.
TEST(Spectral, ErrorOnASkewedSpectrum) {
  constexpr std::size_t kDim = 128;
  constexpr std::size_t kCount = 2048;
  SpectralBasis basis;
  basis.axes.resize(kDim * kDim, 0.0F);
  basis.mean.resize(kDim, 0.25F);
  for (std::size_t i = 0; i < kDim; ++i) {
    basis.axes[i * kDim + i] = 1.0F;
    basis.eigenvalues.push_back(1.0F / static_cast<float>(i + 1));
  }
  std::vector<float> rows = gaussian(kCount * kDim, 8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = rows[i] / std::sqrt(static_cast<float>(i % kDim + 1));
  }
  const struct {
    const char* format;
    double error;
  } cases[] = {{"spectral3", .0526},
               {"spectral_wf3", .0184},
               {"spectral_wf2", .0606},
               {"turboquant_mse3", .0347}};
  for (const auto& expected : cases) {
    std::vector<float> centred = rows;
    for (float& value : centred) value += 0.25F;
    CodecFixture fixture(options(expected.format, basis, kDim));
    std::vector<float> decoded = fixture.round_trip(
        fixture.codec().format().method == Method::kTurboquantMse ? rows : centred);
    if (fixture.codec().format().method != Method::kTurboquantMse) {
      for (float& value : decoded) value -= 0.25F;
    }
    const double error = testing::relative_squared_error(rows, decoded);
    RecordProperty(expected.format, std::to_string(error));
    EXPECT_NEAR(error / expected.error, 1.0, 0.07) << expected.format << ' ' << error;
  }
}

TEST(Spectral, CalibratedCodecsWorkOnBothSides) {
  constexpr std::size_t kDim = 64;
  const std::vector<float> vectors = skewed(640, kDim, 2);
  const SpectralBasis basis = calibrate_spectral(vectors.data(), 640, kDim);
  const std::vector<float> rows = skewed(320, kDim, 3);
  for (const Side side : {Side::kKey, Side::kValue}) {
    double previous = 1.0;
    for (const char* format : {"spectral_wf1", "spectral_wf2", "spectral_wf3", "spectral_wf5"}) {
      CodecOptions with = options(format, basis, kDim);
      with.side = side;
      CodecFixture fixture(with);
      const double error = testing::relative_squared_error(rows, fixture.round_trip(rows));
      EXPECT_LT(error, 0.5 * previous) << format;
      previous = error;
    }
    CodecOptions with = options("spectral4:noise=2", basis, kDim);
    with.side = side;
    CodecFixture fixture(with);
    EXPECT_LT(testing::relative_squared_error(rows, fixture.round_trip(rows)), 0.05);
  }
}

TEST(Spectral, NeedsABasisInOrder) {
  const std::vector<float> vectors = skewed(512, 16, 4);
  SpectralBasis basis = calibrate_spectral(vectors.data(), 512, 16);
  EXPECT_THROW(make_codec({.format = parse_format("spectral3"), .shape = {16, 32}}),
               std::invalid_argument);
  SpectralBasis broken = basis;
  broken.axes[37] = std::nanf("");
  EXPECT_THROW(make_codec(options("spectral3", broken, 16)), std::invalid_argument);
  std::swap(basis.eigenvalues[0], basis.eigenvalues[5]);
  EXPECT_THROW(make_codec(options("spectral3", basis, 16)), std::invalid_argument);
}

}  // namespace
}  // namespace kvpool
