#include "portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace kvpool::internal {

double portable_log(double x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m-1)/(m+1), |s| < 0.172.
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFU) | 0x3FF0000000000000U);
  if (m >= std::numbers::sqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int k = 25; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
  // ln 2 in two parts: the first has few bits, so that its product with the exponent is exact.
  constexpr double kHigh = 0x1.62E42FEE00000p-1;
  constexpr double kLow = 0x1.A39EF35793C76p-33;
  return exponent * kHigh + (2.0 * s + (2.0 * s * series + exponent * kLow));
}

CosineSine portable_cosine_sine(double turns) {
  // Nearest quarter turn, and what is left of it: at most an eighth of a turn either way, exact.
  const double quarters = 4.0 * turns;
  const int quarter = static_cast<int>(std::nearbyint(quarters));
  const double angle = (quarters - quarter) * (std::numbers::pi / 2.0);
  const double square = angle * angle;
  double sine = 1.0;
  for (int k = 20; k >= 2; k -= 2) sine = 1.0 - sine * square / (k * (k + 1));
  sine *= angle;
  double cosine = 1.0;
  for (int k = 21; k >= 1; k -= 2) cosine = 1.0 - cosine * square / (k * (k + 1));
  switch (quarter % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace kvpool::internal
