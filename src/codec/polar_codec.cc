// polar: the rotated vector in recursive polar coordinates.
//
//   y0 y1 y2 y3 … y15     level 1: angle and radius of each pair, full circle
//    r0    r1   …  r7     level 2: of each pair of radii, first quadrant
//      …                  levels 3 and 4 alike; 16 coordinates leave one radius and 15 angles
//
// A code is found by comparing one side of a pair with a threshold's tangent times the other; no
// angle is ever computed.
#include <algorithm>
#include <cmath>

#include "block_io.h"
#include "codec_makers.h"
#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/rotation.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

constexpr std::size_t kLevels = 4;

// The sector of (x, y) among 2^bits equal ones that begin at the positive x axis.
std::uint8_t circle_code(const AngleCodebook& book, float x, float y) {
  if (x == 0.0F && y == 0.0F) return 0;
  if (book.bits == 1) return y < 0.0F || (y == 0.0F && x < 0.0F) ? 1 : 0;
  // Turn into the first quadrant, x > 0 and y >= 0.
  unsigned quadrant = 0;
  float along = x;
  float across = y;
  if (x <= 0.0F && y > 0.0F) {
    quadrant = 1;
    along = y;
    across = -x;
  } else if (x < 0.0F) {
    quadrant = 2;
    along = -x;
    across = -y;
  } else if (y < 0.0F) {
    quadrant = 3;
    along = -y;
    across = x;
  }
  const unsigned per_quadrant = 1U << (book.bits - 2);
  unsigned code = quadrant * per_quadrant;
  for (unsigned i = 0; i + 1 < per_quadrant; ++i) {
    if (across >= book.tangents[i] * along) ++code;
  }
  return static_cast<std::uint8_t>(code);
}

// The number of thresholds strictly below the angle of (x, y), both at least 0.
std::uint8_t quadrant_code(const AngleCodebook& book, float x, float y) {
  const unsigned n_thresholds = (1U << book.bits) - 1U;
  unsigned code = 0;
  for (unsigned i = 0; i < n_thresholds; ++i) {
    if (y > book.tangents[i] * x) ++code;
  }
  return static_cast<std::uint8_t>(code);
}

class PolarCodec final : public TokenCodec {
 public:
  PolarCodec(const FormatSpec& format, const BlockLayout& layout)
      : TokenCodec(format, layout), rotation_(layout.shape.head_dim, format.seed) {
    for (std::size_t i = 0; i < kLevels; ++i)
      books_[i] = angle_codebook(i + 1, format.level_bits[i]);
  }

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    float values[kMaxHeadDim];  // coordinates, then each level's radii
    rotation_.apply(x, values);
    std::size_t n = head_dim();
    for (std::size_t level = 0; level < kLevels; ++level) {
      n /= 2;
      for (std::size_t i = 0; i < n; ++i) {
        const float first = values[2 * i];
        const float second = values[2 * i + 1];
        *codes++ = level == 0 ? circle_code(books_[level], first, second)
                              : quadrant_code(books_[level], first, second);
        values[i] = std::sqrt(first * first + second * second);
      }
    }
    std::size_t n_clamped = 0;
    for (std::size_t i = 0; i < n; ++i) metadata[i] = round_to_half(values[i], &n_clamped);
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    std::size_t n = head_dim() / 16;
    if (std::all_of(metadata, metadata + n, [](float radius) { return radius == 0.0F; })) {
      std::fill(x, x + head_dim(), 0.0F);
      return;
    }
    std::copy(metadata, metadata + n, x);
    codes += head_dim() - n;  // behind the last level's
    for (std::size_t level = kLevels; level-- > 0; n *= 2) {
      codes -= n;
      for (std::size_t i = n; i-- > 0;) {  // from the end: each radius makes room for two values
        const float radius = x[i];
        x[2 * i] = radius * books_[level].cosines[codes[i]];
        x[2 * i + 1] = radius * books_[level].sines[codes[i]];
      }
    }
    rotation_.invert(x, x);
  }

  Rotation rotation_;
  AngleCodebook books_[kLevels];
};

}  // namespace

CodecPointer make_polar_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<PolarCodec>(options.format, layout);
}

}  // namespace kvpool::internal
