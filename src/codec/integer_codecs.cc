// int8: symmetric, one scale a token. int1: signs, one mean magnitude for 32 channels of a token.
#include <algorithm>
#include <cmath>

#include "block_io.h"
#include "codec_makers.h"
#include "kvpool/codec/reduction.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

constexpr float kLargestInt8 = 127.0F;
constexpr std::size_t kSignGroup = 32;

class Int8Codec final : public TokenCodec {
 public:
  Int8Codec(const FormatSpec& format, const BlockLayout& layout) : TokenCodec(format, layout) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    float largest = 0.0F;
    for (std::size_t i = 0; i < head_dim(); ++i) largest = std::max(largest, std::fabs(x[i]));
    std::size_t n_clamped = 0;
    const float scale = round_to_half(largest / kLargestInt8, &n_clamped);
    metadata[0] = scale;
    for (std::size_t i = 0; i < head_dim(); ++i) {
      const float code = scale == 0.0F ? 0.0F : std::nearbyint(x[i] / scale);
      codes[i] = static_cast<std::uint8_t>(
          static_cast<std::int8_t>(std::clamp(code, -kLargestInt8, kLargestInt8)));
    }
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    for (std::size_t i = 0; i < head_dim(); ++i) {
      x[i] = metadata[0] * static_cast<float>(static_cast<std::int8_t>(codes[i]));
    }
  }
};

class Int1Codec final : public TokenCodec {
 public:
  Int1Codec(const FormatSpec& format, const BlockLayout& layout) : TokenCodec(format, layout) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    std::size_t n_clamped = 0;
    for (std::size_t first = 0; first < head_dim(); first += kSignGroup) {
      const std::size_t last = std::min(first + kSignGroup, head_dim());
      const float sum = lane_sum(first, last, [&](std::size_t i) { return std::fabs(x[i]); });
      *metadata++ = round_to_half(sum / static_cast<float>(last - first), &n_clamped);
    }
    for (std::size_t i = 0; i < head_dim(); ++i) codes[i] = x[i] >= 0.0F ? 1 : 0;
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    for (std::size_t i = 0; i < head_dim(); ++i) {
      const float magnitude = metadata[i / kSignGroup];
      x[i] = codes[i] != 0 ? magnitude : -magnitude;
    }
  }
};

}  // namespace

CodecPointer make_int8_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<Int8Codec>(options.format, layout);
}

CodecPointer make_int1_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<Int1Codec>(options.format, layout);
}

}  // namespace kvpool::internal
