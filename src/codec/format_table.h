// What each method's name, bits and options are: one row a method, read by the parser, the writer
// and the error texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvpool/codec/format_spec.h"

namespace kvpool::internal {

// Options that a format string may give, as a set.
enum Option : std::uint32_t {
  kNoOption = 0,
  kGroupOption = 1U << 0,
  kGainOption = 1U << 1,
  kCenterOption = 1U << 2,
  kSketchOption = 1U << 3,
  kRowsOption = 1U << 4,
  kSeedOption = 1U << 5,
  kLevelsOption = 1U << 6,
  kNoiseOption = 1U << 7,
  kSignalOption = 1U << 8,
};

struct FormatRow {
  Method method;
  std::string_view name;      // without bits
  std::string_view alias;     // another name, or empty
  std::string_view bits;      // the digits that may follow the name; empty: none does
  std::uint32_t options;      // set of Option
  std::size_t default_group;  // 0: no groups
  std::string_view groups;    // allowed, for texts; empty: no groups
  bool only_key;
};

inline constexpr FormatRow kFormats[] = {
    {Method::kFp32, "fp32", "", "", kNoOption, 0, "", false},
    {Method::kFp16, "fp16", "", "", kNoOption, 0, "", false},
    {Method::kBf16, "bf16", "", "", kNoOption, 0, "", false},
    {Method::kInt8, "int8", "", "", kNoOption, 0, "", false},
    {Method::kInt4, "int4", "", "", kNoOption, 0, "", false},
    {Method::kInt2, "int2", "", "", kNoOption, 0, "", false},
    {Method::kInt1, "int1", "", "", kNoOption, 0, "", false},
    {Method::kKivi, "kivi", "", "234568", kGroupOption, 32, "16, 32, 64, 128", false},
    {Method::kTurboquantMse, "turboquant_mse", "tq", "12345678",
     kGainOption | kCenterOption | kSeedOption, 0, "", false},
    {Method::kTurboquantProd, "turboquant_prod", "", "12345678",
     kSketchOption | kRowsOption | kSeedOption, 0, "", true},
    {Method::kQjl, "qjl", "", "", kSketchOption | kRowsOption | kSeedOption, 0, "", true},
    {Method::kPolar, "polar", "", "", kLevelsOption | kSeedOption, 0, "", false},
    {Method::kSpectral, "spectral", "", "12345678", kNoiseOption | kSignalOption, 0, "", false},
    {Method::kSpectralWf, "spectral_wf", "", "12345678", kNoOption, 0, "", false},
    {Method::kGgmlQ8, "q8_0", "", "", kNoOption, 0, "", false},
    {Method::kGgmlQ4, "q4_0", "", "", kNoOption, 0, "", false},
    {Method::kMlxAffine, "mlx_affine", "", "234568", kGroupOption, 64, "32, 64, 128", false},
};

constexpr const FormatRow& format_row(Method method) {
  return kFormats[static_cast<std::size_t>(method)];
}

}  // namespace kvpool::internal
