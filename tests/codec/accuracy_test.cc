// The error that each format must show on random vectors: closed forms, or values measured with
// independent implementations where there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codec/block_io.h"
#include "codec_fixture.h"
#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/limits.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::dot;
using testing::gaussian;
using testing::kHeadDims;
using testing::relative_squared_error;
using testing::unit_vectors;

constexpr std::size_t kKeys = 3008;  // 94 blocks of 32

TEST(Accuracy, TurboquantNormHasTheExactDistortion) {
  // For d = 64 the codebook's error on the exact density of a coordinate; it tends to that on
  // N(0, 1) as 1/d.
  const double at_64[] = {.358387, .114526, .033391, .009132};
  for (const std::size_t d : kHeadDims) {
    const std::vector<float> keys = unit_vectors(kKeys, d, d);
    for (std::size_t bits = 1; bits <= 4; ++bits) {
      const double limit = normal_distortion(bits);
      const double exact = limit - (limit - at_64[bits - 1]) * 64.0 / static_cast<double>(d);
      CodecFixture fixture("tq" + std::to_string(bits) + ":gain=norm", Side::kKey, d);
      const double error = relative_squared_error(keys, fixture.round_trip(keys));
      EXPECT_NEAR(error / exact, 1.0, 0.03) << "d = " << d << ", " << bits << " bits: " << error;
    }
  }
}

TEST(Accuracy, TurboquantMseIsBetterThanNorm) {
  const std::vector<float> keys = unit_vectors(kKeys, 64, 1);
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    CodecFixture least_squares("tq" + std::to_string(bits), Side::kValue, 64);
    CodecFixture norm("tq" + std::to_string(bits) + ":gain=norm", Side::kValue, 64);
    const double error = relative_squared_error(keys, least_squares.round_trip(keys));
    EXPECT_LT(error, relative_squared_error(keys, norm.round_trip(keys))) << bits;
    // The coordinate's density is a little narrower than N(0, 1): up to a tenth less at d = 64.
    EXPECT_NEAR(error / normal_distortion(bits), 0.95, 0.05) << bits;
  }
}

struct DotError {
  double slope;  // of the estimates on the true dot products
  double mse;    // mean squared error times d
};

// Each key meets `n_each` of the 300 queries.
DotError dot_error(const std::vector<float>& keys, const std::vector<float>& decoded, std::size_t d,
                   std::size_t n_each) {
  constexpr std::size_t kQueries = 300;
  const std::vector<float> queries = unit_vectors(kQueries, d, 1000 + d);
  double product = 0.0;
  double energy = 0.0;
  double error = 0.0;
  const std::size_t n_keys = keys.size() / d;
  for (std::size_t key = 0; key < n_keys; ++key) {
    for (std::size_t i = 0; i < n_each; ++i) {
      const float* q = queries.data() + (key * n_each + i) % kQueries * d;
      const double exact = dot(q, keys.data() + key * d, d);
      const double estimate = dot(q, decoded.data() + key * d, d);
      product += estimate * exact;
      energy += exact * exact;
      error += (estimate - exact) * (estimate - exact);
    }
  }
  const auto n_pairs = static_cast<double>(n_keys * n_each);
  return {product / energy, error / n_pairs * static_cast<double>(d)};
}

TEST(Accuracy, TurboquantIpIsUnbiased) {
  const double expected[] = {.566, .131, .0347, .0092};
  for (const std::size_t d : kHeadDims) {
    const std::vector<float> keys = unit_vectors(kKeys, d, 2 * d);
    for (std::size_t bits = 1; bits <= 4; ++bits) {
      CodecFixture fixture("tq" + std::to_string(bits) + ":gain=ip", Side::kKey, d);
      const DotError error = dot_error(keys, fixture.round_trip(keys), d, 40);
      EXPECT_NEAR(error.slope, 1.0, 0.005) << "d = " << d << ", " << bits << " bits";
      EXPECT_NEAR(error.mse / expected[bits - 1], 1.0, 0.06) << error.mse;
    }
  }
}

// Averages over seeds: one Gaussian sketch alone is noisy.
DotError sketch_error(const std::string& format, std::size_t d, std::size_t n_seeds,
                      std::size_t n_keys) {
  DotError mean{0.0, 0.0};
  for (std::size_t seed = 0; seed < n_seeds; ++seed) {
    const std::string option = (format.find(':') == std::string::npos ? ":" : ",");
    CodecFixture fixture(format + option + "seed=" + std::to_string(seed), Side::kKey, d);
    const std::vector<float> keys = unit_vectors(n_keys, d, 50 + seed);
    const DotError error = dot_error(keys, fixture.round_trip(keys), d, 30);
    mean.slope += error.slope / static_cast<double>(n_seeds);
    mean.mse += error.mse / static_cast<double>(n_seeds);
  }
  return mean;
}

void expect_sketch_error(const std::string& format, std::size_t d, double mse) {
  const std::size_t n_seeds = format.find("gauss") == std::string::npos ? 3 : 8;
  const DotError error = sketch_error(format, d, n_seeds, 256);
  EXPECT_NEAR(error.slope, 1.0, 0.02) << format << ", d = " << d;
  EXPECT_NEAR(error.mse / mse, 1.0, 0.08) << format << ", d = " << d << ": " << error.mse;
}

TEST(Accuracy, OrthogonalSketchesAreNearlyUnbiasedWithLessVariance) {
  for (const std::size_t d : kHeadDims) {
    expect_sketch_error("turboquant_prod1", d, .564);
    expect_sketch_error("turboquant_prod2", d, .204);
    expect_sketch_error("turboquant_prod3", d, .0655);
    expect_sketch_error("turboquant_prod4", d, .0192);
    expect_sketch_error("qjl", d, .563);
  }
  expect_sketch_error("qjl:m=256", 128, .280);
  expect_sketch_error("qjl:m=512", 128, .141);
}

TEST(Accuracy, GaussianSketchesAreUnbiasedWithTheKnownVariance) {
  for (const std::size_t d : {std::size_t{64}, std::size_t{128}}) {
    expect_sketch_error("turboquant_prod1:sketch=gauss", d, 1.571);
    expect_sketch_error("turboquant_prod2:sketch=gauss", d, .571);
    expect_sketch_error("turboquant_prod3:sketch=gauss", d, .185);
    expect_sketch_error("turboquant_prod4:sketch=gauss", d, .0543);
    expect_sketch_error("qjl:sketch=gauss", d, 1.574);
  }
  expect_sketch_error("qjl:sketch=gauss,m=256", 128, .784);
}

TEST(Accuracy, QjlsBiasDrownsInItsNoise) {
  constexpr std::size_t kDim = 64;
  constexpr std::size_t kSeeds = 20;
  constexpr std::size_t kCount = 96;
  const std::vector<float> keys = unit_vectors(kCount, kDim, 5);
  const std::vector<float> queries = unit_vectors(kCount, kDim, 6);
  for (const std::string format : {"qjl:sketch=gauss", "qjl:sketch=orth"}) {
    std::vector<double> sums(kCount, 0.0);
    double variance = 0.0;
    for (std::size_t seed = 0; seed < kSeeds; ++seed) {
      CodecFixture fixture(format + ",seed=" + std::to_string(seed), Side::kKey, kDim);
      const std::vector<float> decoded = fixture.round_trip(keys);
      for (std::size_t i = 0; i < kCount; ++i) {
        const double error = dot(queries.data() + i * kDim, decoded.data() + i * kDim, kDim) -
                             dot(queries.data() + i * kDim, keys.data() + i * kDim, kDim);
        sums[i] += error;
        variance += error * error / (kSeeds * kCount);
      }
    }
    double bias = 0.0;
    for (const double sum : sums) bias += std::pow(sum / kSeeds, 2) / kCount;
    EXPECT_LT(std::sqrt(bias), 1.3 * std::sqrt(variance / kSeeds)) << format;
  }
}

TEST(Accuracy, KiviHasTheMeasuredError) {
  const double expected[4][6] = {{.1072, .01945, .00423, .00099, .00024, 1.5e-5},
                                 {.1550, .02817, .00613, .00144, .00035, 2.1e-5},
                                 {.2015, .03690, .00801, .00187, .00045, 2.8e-5},
                                 {.2498, .04563, .00992, .00232, .00056, 3.4e-5}};
  const std::size_t groups[] = {16, 32, 64, 128};
  const std::size_t bits[] = {2, 3, 4, 5, 6, 8};
  const std::vector<float> rows = gaussian(std::size_t{24} * 128 * 64, 12);
  for (std::size_t g = 0; g < 4; ++g) {
    for (std::size_t b = 0; b < 6; ++b) {
      const std::string format =
          "kivi" + std::to_string(bits[b]) + ":g=" + std::to_string(groups[g]);
      CodecFixture fixture(format, Side::kKey, 64, 128);
      const double error = relative_squared_error(rows, fixture.round_trip(rows));
      // The table's own last digit, where it is coarser than 3%.
      const double digit = bits[b] == 8 ? 0.5e-6 : 0.5e-5;
      EXPECT_NEAR(error, expected[g][b], 0.03 * expected[g][b] + digit) << format;
    }
  }
}

TEST(Accuracy, KiviKeepsItsElementwiseBound) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    for (const char* format :
         {"kivi2", "kivi3:g=16", "kivi4:g=64", "kivi5", "kivi6", "kivi8:g=128"}) {
      for (const std::size_t d : kHeadDims) {
        CodecFixture fixture(format, side, d);
        std::vector<float> rows = gaussian(32 * d, d);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          rows[i] =
              std::ldexp(rows[i], static_cast<int>(i / 7 % 24) - 12) + (i % 3 == 0 ? 100.0F : 0.0F);
        }
        fixture.encode(rows);
        const std::vector<float> decoded = fixture.decode();
        const FormatSpec& spec = fixture.codec().format();
        const double largest = std::pow(2.0, static_cast<double>(spec.bits)) - 1.0;
        const std::size_t n_groups = (d + spec.group - 1) / spec.group;
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const std::size_t t = i / d;
          const std::size_t index = side == Side::kKey
                                        ? t / std::min(spec.group, std::size_t{32}) * d + i % d
                                        : t * n_groups + i % d / spec.group;
          const auto metadata = [&](std::size_t array) {
            return static_cast<double>(internal::load_half(
                fixture.block() + fixture.layout().metadata[array].offset, index));
          };
          const double scale = metadata(0);
          const double bound = scale / 2.0 +
                               std::ldexp(std::fabs(metadata(1)) + largest * scale, -11) +
                               std::ldexp(largest, -24);
          ASSERT_LE(std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(rows[i])),
                    bound * (1.0 + 1e-6))
              << format << ", d = " << d << ", element " << i;
        }
      }
    }
  }
}

TEST(Accuracy, PolarHasTheMeasuredDistortion) {
  const struct {
    const char* levels;
    double distortion;
  } cases[] = {{"4222", .0321}, {"2222", .217}, {"3333", .056}, {"4333", .0181}, {"4444", .0142}};
  for (const std::size_t d : kHeadDims) {
    const std::vector<float> keys = unit_vectors(kKeys, d, 3 * d);
    for (const auto& expected : cases) {
      CodecFixture fixture(std::string("polar:levels=") + expected.levels, Side::kKey, d);
      const double error = relative_squared_error(keys, fixture.round_trip(keys));
      EXPECT_NEAR(error / expected.distortion, 1.0, 0.03)
          << expected.levels << ", d = " << d << ": " << error;
    }
  }
}

TEST(Accuracy, ReferenceFormatsHaveTheMeasuredError) {
  const struct {
    const char* format;
    double error;
  } cases[] = {{"q8_0", 3.0e-5},
               {"q4_0", 7.5e-3},
               {"mlx_affine4:g=32", .0066},
               {"mlx_affine4", .0085},
               {"mlx_affine4:g=128", .0103}};
  // The measured values have two digits.
  const std::vector<float> rows = gaussian(kKeys * 128, 13);
  for (const auto& expected : cases) {
    CodecFixture fixture(expected.format, Side::kValue, 128);
    const double error = relative_squared_error(rows, fixture.round_trip(rows));
    EXPECT_NEAR(error / expected.error, 1.0, 0.05) << expected.format << ": " << error;
  }
}

TEST(Accuracy, CenteringRemovesACommonMean) {
  constexpr std::size_t kDim = 64;
  std::vector<float> rows = gaussian(64 * kDim, 14);
  std::vector<float> mean(kDim);
  for (std::size_t i = 0; i < kDim; ++i) mean[i] = i % 8 == 0 ? 20.0F : 0.0F;
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += mean[i % kDim];
  const auto total_error = [&](CodecFixture fixture) {
    return relative_squared_error(rows, fixture.round_trip(rows));
  };
  const double plain = total_error(CodecFixture("tq3", Side::kKey, kDim));
  const double centred = total_error(CodecFixture(CodecOptions{
      .format = parse_format("tq3:center=1"), .shape = {kDim, 32}, .mean = mean.data()}));
  EXPECT_LT(centred, 0.05 * plain);
  EXPECT_THROW(CodecFixture("tq3:center=1", Side::kKey, kDim), std::invalid_argument);
}

}  // namespace
}  // namespace kvpool
