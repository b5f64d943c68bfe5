// Conversions between float and the two 16-bit floating-point formats, on their bit patterns.
//
// IEEE binary16 (half) and bfloat16. To 16 bits: round to nearest, ties to even; what is too large
// becomes infinite; a NaN stays a NaN (made quiet, the upper bits of its payload kept). From 16
// bits: exact. Integer operations only, so that every machine gives the same bits whatever its
// rounding mode and its flush-to-zero mode, and the results can be compared with hardware
// conversions.
//
// No state; any thread; O(1).
//
//   const std::uint16_t scale = half_from_float(0.1f);   // 0x2e66
//   const float rounded = float_from_half(scale);        // 0.0999755859375
#pragma once

#include <bit>
#include <cstdint>

namespace kvpool {

// The largest finite half.
inline constexpr float kLargestHalf = 65504.0F;
// The largest finite bfloat16: 0x7f7f.
inline constexpr float kLargestBfloat16 = 0x1.FEp127F;

constexpr std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {  // NaN
    half = 0x7E00U | (magnitude >> 13 & 0x1FFU);
  } else if (magnitude >= 0x477FF000U) {  // 65520, halfway beyond the largest, and above
    half = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14 and above: normal
    half = (magnitude + 0xFFFU + (magnitude >> 13 & 1U) - 0x38000000U) >> 13;
  } else if (magnitude >= 0x33000000U) {  // 2^-25 and above: a multiple of 2^-24
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t shift = 126U - (magnitude >> 23);
    const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
    const std::uint32_t tie = 1U << (shift - 1U);
    half = mantissa >> shift;
    if (rest > tie || (rest == tie && (half & 1U) != 0U)) ++half;
  }
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float float_from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1FU;
  std::uint32_t mantissa = half & 0x3FFU;
  std::uint32_t magnitude = 0;
  if (exponent == 31U) {
    magnitude = 0x7F800000U | mantissa << 13;
  } else if (exponent != 0U) {
    magnitude = (exponent + 112U) << 23 | mantissa << 13;
  } else if (mantissa != 0U) {  // subnormal: a normal float
    const auto zeros = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21U;
    mantissa = mantissa << zeros & 0x3FFU;
    magnitude = (113U - zeros) << 23 | mantissa << 13;
  }
  return std::bit_cast<float>(sign | magnitude);
}

constexpr std::uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

constexpr float float_from_bfloat16(std::uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16) << 16);
}

}  // namespace kvpool
