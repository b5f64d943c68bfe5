#include "kvpool/base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvpool {
namespace {

constexpr std::uint32_t kPatterns = 65536;

// What the 16 bits mean, computed from the definition of the format.
double meaning(std::uint32_t pattern, int n_mantissa_bits) {
  const int n_exponent_bits = 15 - n_mantissa_bits;
  const int bias = (1 << (n_exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(pattern & ((1U << n_mantissa_bits) - 1U));
  const auto exponent =
      static_cast<int>(pattern >> n_mantissa_bits & ((1U << n_exponent_bits) - 1U));
  const double sign = (pattern & 0x8000U) != 0U ? -1.0 : 1.0;
  if (exponent == (1 << n_exponent_bits) - 1) {
    return mantissa == 0.0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
  }
  const double unit = std::ldexp(1.0, -n_mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(mantissa * unit, 1 - bias)
                               : std::ldexp(1.0 + mantissa * unit, exponent - bias));
}

template <typename FromFloat, typename ToFloat>
void check_all_patterns(FromFloat from_float, ToFloat to_float, int n_mantissa_bits) {
  for (std::uint32_t pattern = 0; pattern < kPatterns; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float value = to_float(bits);
    const double expected = meaning(pattern, n_mantissa_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << pattern;
      const auto quiet = static_cast<std::uint16_t>(pattern | 1U << (n_mantissa_bits - 1));
      ASSERT_EQ(from_float(value), quiet) << pattern;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << pattern;
    ASSERT_EQ(std::signbit(value), (pattern & 0x8000U) != 0U) << pattern;
    ASSERT_EQ(from_float(value), bits) << pattern;
  }
}

// Between each two neighbours: just below the midpoint, the midpoint, just above it.
template <typename FromFloat, typename ToFloat>
void check_all_midpoints(FromFloat from_float, ToFloat to_float, std::uint32_t infinity,
                         double beyond_largest) {
  for (std::uint32_t pattern = 0; pattern < infinity; ++pattern) {
    const auto below = static_cast<std::uint16_t>(pattern);
    const auto above = static_cast<std::uint16_t>(pattern + 1U);
    const double upper =
        pattern + 1U == infinity ? beyond_largest : static_cast<double>(to_float(above));
    const auto midpoint = static_cast<float>((static_cast<double>(to_float(below)) + upper) / 2.0);
    const std::uint16_t even = (pattern & 1U) == 0U ? below : above;
    ASSERT_EQ(from_float(midpoint), even) << pattern;
    ASSERT_EQ(from_float(std::nextafter(midpoint, 0.0F)), below) << pattern;
    const float next = std::nextafter(midpoint, std::numeric_limits<float>::infinity());
    ASSERT_EQ(from_float(next), above) << pattern;
    ASSERT_EQ(from_float(-midpoint), even | 0x8000U) << pattern;
  }
}

TEST(Half, EveryPatternMeansWhatIeeeSaysAndComesBack) {
  check_all_patterns(half_from_float, float_from_half, 10);
}

TEST(Half, RoundsToNearestEvenAroundEveryMidpoint) {
  check_all_midpoints(half_from_float, float_from_half, 0x7C00U, 65536.0);
}

TEST(Half, TooSmallBecomesZeroAndTooLargeInfinite) {
  EXPECT_EQ(half_from_float(0x1p-25F), 0);
  EXPECT_EQ(half_from_float(-0x1p-25F), 0x8000);
  EXPECT_EQ(half_from_float(std::nextafter(0x1p-25F, 1.0F)), 1);
  EXPECT_EQ(half_from_float(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(half_from_float(65519.996F), 0x7BFF);
  EXPECT_EQ(half_from_float(65520.0F), 0x7C00);
  EXPECT_EQ(half_from_float(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(float_from_half(half_from_float(kLargestHalf)), kLargestHalf);
}

TEST(Half, NanStaysNanWithoutATraceInTheUpperPayload) {
  EXPECT_EQ(half_from_float(std::bit_cast<float>(0x7F800001U)), 0x7E00);
  EXPECT_EQ(half_from_float(std::bit_cast<float>(0xFFFFFFFFU)), 0xFFFF);
}

TEST(Bfloat16, EveryPatternMeansWhatItSaysAndComesBack) {
  check_all_patterns(bfloat16_from_float, float_from_bfloat16, 7);
}

TEST(Bfloat16, RoundsToNearestEvenAroundEveryMidpoint) {
  check_all_midpoints(bfloat16_from_float, float_from_bfloat16, 0x7F80U, std::ldexp(1.0, 128));
}

TEST(Bfloat16, NanStaysNanWithoutATraceInTheUpperPayload) {
  EXPECT_EQ(bfloat16_from_float(std::bit_cast<float>(0x7F800001U)), 0x7FC0);
  EXPECT_EQ(bfloat16_from_float(std::bit_cast<float>(0xFF800001U)), 0xFFC0);
  EXPECT_EQ(float_from_bfloat16(bfloat16_from_float(kLargestBfloat16)), kLargestBfloat16);
}

}  // namespace
}  // namespace kvpool
