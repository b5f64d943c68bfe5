// FormatSpec: which format, with all options that change its bytes.
//
// Written as a name, bits where the method has several, and options where they are not the default:
//
//   fp32 fp16 bf16                 plain
//   int8 int4 int2 int1            per token; int8 symmetric, int4 and int2 min-max of 32 channels,
//                                  int1 sign times mean magnitude of 32 channels
//   kivi2 3 4 5 6 8                g=16|32|64|128
//   turboquant_mse1…8 (tq1…8)      gain=mse|ip|norm, center=0|1 (K only), seed=N
//   turboquant_prod1…8 (K only)    sketch=orth|gauss, m=N (multiple of head_dim), seed=N
//   qjl (K only)                   sketch=orth|gauss, m=N (multiple of 16, of head_dim for orth),
//                                  seed=N
//   polar                          levels=4222 (bits of levels 1 to 4, 1…4 each), seed=N
//   spectral1…8                    noise=1…8 (bits of the noise channels, at most the signal's),
//                                  signal=N (channels)
//   spectral_wf1…8                 mean bits a channel
//   q8_0 q4_0                      blocks of ggml
//   mlx_affine2 3 4 5 6 8          g=32|64|128
//
// A value with no owner; any thread. to_string() leaves defaults out, and parse_format() of it
// gives the equal value, so the string is the identity of a block's format.
//
//   const FormatSpec spec = parse_format("kivi4:g=64");
//   check_format(spec, Side::kKey, {.head_dim = 128, .block_size = 32});
//   to_string(parse_format("tq4:gain=mse"));   // "turboquant_mse4"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvpool/codec/sketch.h"

namespace kvpool {

enum class Method : std::uint8_t {
  kFp32,
  kFp16,
  kBf16,
  kInt8,
  kInt4,
  kInt2,
  kInt1,
  kKivi,
  kTurboquantMse,
  kTurboquantProd,
  kQjl,
  kPolar,
  kSpectral,
  kSpectralWf,
  kGgmlQ8,
  kGgmlQ4,
  kMlxAffine,
};

// Whether a block holds keys, scored against a query, or values, summed by weights.
enum class Side : std::uint8_t { kKey, kValue };

// What turboquant_mse stores as a vector's gain, with n its norm, u its direction, h its codebook
// entries: n<u,h>/<h,h>, least squares; n/<u,h>, unbiased dot products; n.
enum class Gain : std::uint8_t { kMse, kIp, kNorm };

// One KV head's block: head_dim channels of block_size tokens.
struct BlockShape {
  std::size_t head_dim;
  std::size_t block_size;

  bool operator==(const BlockShape&) const = default;
};

// Fields that a method has no use for keep their defaults, so that equal formats compare equal.
struct FormatSpec {
  Method method = Method::kFp16;
  // Bits a code: of turboquant_prod with the sketch's bit, of spectral those of the signal
  // channels, of spectral_wf the mean. 0 for methods that have a fixed number.
  std::size_t bits = 0;
  std::size_t group = 0;  // kivi, mlx_affine
  Gain gain = Gain::kMse;
  bool center = false;  // turboquant_mse
  SketchKind sketch = SketchKind::kOrthogonal;
  std::size_t sketch_rows = 0;                            // 0: head_dim
  std::uint64_t seed = 42;                                // of rotations and sketches
  std::array<std::uint8_t, 4> level_bits = {4, 2, 2, 2};  // polar
  std::size_t noise_bits = 0;                             // spectral
  std::size_t signal_channels = 0;                        // spectral; 0: from the eigenvalues

  bool operator==(const FormatSpec&) const = default;
};

// Throws std::invalid_argument that lists what is valid.
FormatSpec parse_format(std::string_view text);
std::string to_string(const FormatSpec& spec);

// Throws std::invalid_argument that says what the format needs, where it can't hold such blocks.
void check_format(const FormatSpec& spec, Side side, const BlockShape& shape);

// Rows of the format's sketch: sketch_rows, or head_dim.
std::size_t sketch_rows(const FormatSpec& spec, std::size_t head_dim);

}  // namespace kvpool
