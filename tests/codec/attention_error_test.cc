// What compression does to attention's output: softmax(q.K / sqrt(d)) V in double, on decoded keys
// or values. T = 1024 tokens, d = 128, no window, K, V and q from N(0, 1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "codec_fixture.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::dot;
using testing::gaussian;

constexpr std::size_t kTokens = 1024;
constexpr std::size_t kDim = 128;
constexpr std::size_t kQueries = 64;

class AttentionError : public ::testing::Test {
 protected:
  // [kQueries][kDim]
  std::vector<double> attend(const std::vector<float>& keys,
                             const std::vector<float>& values) const {
    std::vector<double> out(kQueries * kDim, 0.0);
    std::vector<double> weights(kTokens);
    for (std::size_t query = 0; query < kQueries; ++query) {
      for (std::size_t t = 0; t < kTokens; ++t) {
        weights[t] = dot(queries_.data() + query * kDim, keys.data() + t * kDim, kDim) /
                     std::sqrt(static_cast<double>(kDim));
      }
      const double most = *std::max_element(weights.begin(), weights.end());
      double sum = 0.0;
      for (double& weight : weights) sum += weight = std::exp(weight - most);
      double* row = out.data() + query * kDim;
      for (std::size_t t = 0; t < kTokens; ++t) {
        const double weight = weights[t] / sum;
        const float* value = values.data() + t * kDim;
        for (std::size_t i = 0; i < kDim; ++i) row[i] += weight * static_cast<double>(value[i]);
      }
    }
    return out;
  }

  // The mean over queries of |approximate - exact| / |exact|.
  double relative_error(const std::vector<double>& approximate) const {
    double mean = 0.0;
    for (std::size_t query = 0; query < kQueries; ++query) {
      double error = 0.0;
      double energy = 0.0;
      for (std::size_t i = query * kDim; i < (query + 1) * kDim; ++i) {
        error += std::pow(approximate[i] - exact_[i], 2);
        energy += exact_[i] * exact_[i];
      }
      mean += std::sqrt(error / energy) / kQueries;
    }
    return mean;
  }

  std::vector<float> keys_ = gaussian(kTokens * kDim, 101);
  std::vector<float> values_ = gaussian(kTokens * kDim, 102);
  std::vector<float> queries_ = gaussian(kQueries * kDim, 103);
  std::vector<double> exact_ = attend(keys_, values_);
};

TEST_F(AttentionError, OfCompressedKeys) {
  const struct {
    const char* format;
    double error;
  } cases[] = {{"tq2", .355},
               {"tq3", .193},
               {"tq4", .099},
               {"tq5", .052},
               {"tq8", .0065},
               {"tq2:gain=ip", .397},
               {"tq3:gain=ip", .200},
               {"tq4:gain=ip", .101},
               {"kivi2", .425},
               {"kivi3", .175},
               {"kivi4", .079},
               {"kivi8", .0047},
               {"turboquant_prod2:sketch=gauss", .94},
               {"turboquant_prod3:sketch=gauss", .47},
               {"turboquant_prod4:sketch=gauss", .24},
               {"polar", .185},
               {"q8_0", .0057},
               {"q4_0", .093},
               {"mlx_affine4", .098},
               {"qjl", .91},
               {"qjl:m=256", .60},
               {"qjl:m=512", .41}};
  for (const auto& expected : cases) {
    const std::string format = expected.format;
    // One Gaussian sketch alone is noisy; rotations are not.
    const bool noisy = format.find("gauss") != std::string::npos;
    const std::size_t n_seeds = noisy ? 4 : 1;
    double error = 0.0;
    for (std::size_t seed = 0; seed < n_seeds; ++seed) {
      CodecFixture fixture(noisy ? format + ",seed=" + std::to_string(seed) : format, Side::kKey,
                           kDim);
      error +=
          relative_error(attend(fixture.round_trip(keys_), values_)) / static_cast<double>(n_seeds);
    }
    EXPECT_NEAR(error / expected.error, 1.0, 0.15) << expected.format << ": " << error;
  }
}

TEST_F(AttentionError, OfCompressedValues) {
  const struct {
    const char* format;
    double error;
  } cases[] = {{"kivi2", .416}, {"kivi3", .177}, {"kivi4", .083},
               {"tq2", .355},   {"tq3", .192},   {"tq4", .102}};
  for (const auto& expected : cases) {
    CodecFixture fixture(expected.format, Side::kValue, kDim);
    const double error = relative_error(attend(keys_, fixture.round_trip(values_)));
    EXPECT_NEAR(error / expected.error, 1.0, 0.15) << expected.format << ": " << error;
  }
}

TEST_F(AttentionError, OfFloatFormatsIsTheirRounding) {
  for (const auto& [format, error] : {std::pair{"fp32", 1e-7}, {"fp16", 5e-4}, {"bf16", 5e-3}}) {
    CodecFixture keys(format, Side::kKey, kDim);
    CodecFixture values(format, Side::kValue, kDim);
    EXPECT_LT(relative_error(attend(keys.round_trip(keys_), values.round_trip(values_))), error);
  }
}

}  // namespace
}  // namespace kvpool
