// mlx_affine: the codes, scales and biases of mx.quantize on halves.
//
// Codes form one little-endian bit string a token; those of 3, 5 and 6 bits straddle bytes. They
// are computed with the scale and bias before these are rounded to halves, as mx.quantize does.
#include <algorithm>
#include <cmath>

#include "affine.h"
#include "codec_makers.h"
#include "kvpool/codec/limits.h"

namespace kvpool::internal {
namespace {

constexpr float kLeastScale = 1e-7F;

// Exact at the end of larger magnitude and at zero, if that is in the range.
Affine fit(const float* x, std::size_t n, float largest) {
  const auto [least, most] = std::minmax_element(x, x + n);
  const bool from_least = std::fabs(*least) > std::fabs(*most);
  const float step = std::max((*most - *least) / largest, kLeastScale);
  const float scale = from_least ? step : -step;
  const float edge = from_least ? *least : *most;
  const float edge_code = std::nearbyint(edge / scale);
  if (edge_code == 0.0F) return {scale, 0.0F};
  return {edge / edge_code, edge};
}

void pack_bits(const std::uint8_t* codes, std::size_t n, std::size_t bits, std::byte* out) {
  unsigned waiting = 0;
  std::size_t n_waiting = 0;
  for (std::size_t i = 0; i < n; ++i) {
    waiting |= static_cast<unsigned>(codes[i]) << n_waiting;
    for (n_waiting += bits; n_waiting >= 8; n_waiting -= 8) {
      *out++ = static_cast<std::byte>(waiting & 0xFFU);
      waiting >>= 8;
    }
  }
}

void unpack_bits(const std::byte* in, std::size_t n, std::size_t bits, std::uint8_t* codes) {
  unsigned waiting = 0;
  std::size_t n_waiting = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (n_waiting < bits) {
      waiting |= std::to_integer<unsigned>(*in++) << n_waiting;
      n_waiting += 8;
    }
    codes[i] = static_cast<std::uint8_t>(waiting & ((1U << bits) - 1U));
    waiting >>= bits;
    n_waiting -= bits;
  }
}

class MlxAffineCodec final : public BlockCodec {
 public:
  MlxAffineCodec(const FormatSpec& format, const BlockLayout& layout)
      : BlockCodec(format, layout),
        n_groups_(layout.shape.head_dim / format.group),
        row_bytes_(layout.rows.bytes / layout.shape.block_size),
        largest_code_(largest_code(format.bits)) {}

 private:
  std::size_t do_encode(const float* rows, std::byte* block) const override {
    const std::size_t d = layout().shape.head_dim;
    std::size_t n_clamped = 0;
    for (std::size_t t = 0; t < layout().shape.block_size; ++t) {
      std::uint8_t codes[kMaxHeadDim];
      for (std::size_t group = 0; group < n_groups_; ++group) {
        const std::size_t first = group * format().group;
        const float* x = rows + t * d + first;
        const Affine affine = fit(x, format().group, largest_code_);
        const std::size_t index = t * n_groups_ + group;
        store_half(block + layout().metadata[0].offset, index,
                   round_to_half(affine.scale, &n_clamped));
        store_half(block + layout().metadata[1].offset, index,
                   round_to_half(affine.zero, &n_clamped));
        for (std::size_t i = 0; i < format().group; ++i) {
          codes[first + i] = affine.code(x[i], largest_code_);
        }
      }
      pack_bits(codes, d, format().bits, block + layout().rows.offset + t * row_bytes_);
    }
    return n_clamped;
  }

  void do_decode(const std::byte* block, float* rows) const override {
    const std::size_t d = layout().shape.head_dim;
    for (std::size_t t = 0; t < layout().shape.block_size; ++t) {
      std::uint8_t codes[kMaxHeadDim];
      unpack_bits(block + layout().rows.offset + t * row_bytes_, d, format().bits, codes);
      for (std::size_t i = 0; i < d; ++i) {
        const std::size_t index = t * n_groups_ + i / format().group;
        const Affine affine{load_half(block + layout().metadata[0].offset, index),
                            load_half(block + layout().metadata[1].offset, index)};
        rows[t * d + i] = affine.value(codes[i]);
      }
    }
  }

  std::size_t n_groups_;
  std::size_t row_bytes_;
  float largest_code_;
};

}  // namespace

CodecPointer make_mlx_affine_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<MlxAffineCodec>(options.format, layout);
}

}  // namespace kvpool::internal
