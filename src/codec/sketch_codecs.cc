// turboquant_prod: codes of one bit less than turboquant_mse's, and a sign sketch of what they
// miss. qjl: the sign sketch of the vector itself.
#include "block_io.h"
#include "codec_makers.h"
#include "gaussian_coordinates.h"
#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/sketch.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

SketchOptions sketch_options(const CodecOptions& options) {
  const std::size_t d = options.shape.head_dim;
  return {.kind = options.format.sketch,
          .head_dim = d,
          .n_rows = sketch_rows(options.format, d),
          .seed = options.format.seed};
}

// bits: [n_rows], 1 where S x >= 0 (so a zero counts as positive).
void sketch_bits(const Sketch& sketch, const float* x, std::uint8_t* bits) {
  float projected[kMaxSketchRows];
  sketch.project(x, projected);
  for (std::size_t i = 0; i < sketch.n_rows(); ++i) bits[i] = projected[i] >= 0.0F ? 1 : 0;
}

// out: [head_dim], the vector that <S q, signs> is the dot product of q with.
void vector_of_bits(const Sketch& sketch, const std::uint8_t* bits, float* out) {
  float signs[kMaxSketchRows];
  for (std::size_t i = 0; i < sketch.n_rows(); ++i) signs[i] = bits[i] != 0 ? 1.0F : -1.0F;
  sketch.back_project(signs, out);
}

class TurboquantProdCodec final : public TokenCodec {
 public:
  TurboquantProdCodec(const CodecOptions& options, const BlockLayout& layout)
      : TokenCodec(options.format, layout),
        rotation_(options.shape.head_dim, options.format.seed),
        sketch_(sketch_options(options)),
        has_codes_(options.format.bits > 1),
        book_(normal_codebook(has_codes_ ? options.format.bits - 1 : 1)),
        root_(std::sqrt(static_cast<float>(options.shape.head_dim))) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    const std::size_t d = head_dim();
    float residual[kMaxHeadDim];
    const float norm = gaussian_coordinates(rotation_, x, residual);
    for (std::size_t i = 0; i < d; ++i) {
      codes[i] = has_codes_ ? book_.nearest(residual[i]) : std::uint8_t{0};
      if (has_codes_) residual[i] -= book_.centroids[codes[i]];
    }
    sketch_bits(sketch_, residual, codes + d);
    std::size_t n_clamped = 0;
    metadata[0] = round_to_half(norm, &n_clamped);
    metadata[1] = round_to_half(norm * (norm_of(residual, d) / root_), &n_clamped);
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    const std::size_t d = head_dim();
    if (metadata[0] == 0.0F) {
      std::fill(x, x + d, 0.0F);
      return;
    }
    vector_of_bits(sketch_, codes + d, x);
    const float norm = metadata[0] / root_;
    const float residual_norm = sketch_.factor() * metadata[1];
    for (std::size_t i = 0; i < d; ++i) {
      x[i] *= residual_norm;
      if (has_codes_) x[i] += norm * book_.centroids[codes[i]];
    }
    rotation_.invert(x, x);
  }

  Rotation rotation_;
  Sketch sketch_;
  bool has_codes_;  // with one bit in all, the sketch is everything
  ScalarCodebook book_;
  float root_;  // sqrt(head_dim)
};

class QjlCodec final : public TokenCodec {
 public:
  QjlCodec(const CodecOptions& options, const BlockLayout& layout)
      : TokenCodec(options.format, layout), sketch_(sketch_options(options)) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    sketch_bits(sketch_, x, codes);
    std::size_t n_clamped = 0;
    metadata[0] = round_to_half(norm_of(x, head_dim()), &n_clamped);
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    if (metadata[0] == 0.0F) {
      std::fill(x, x + head_dim(), 0.0F);
      return;
    }
    vector_of_bits(sketch_, codes, x);
    const float factor = sketch_.factor() * metadata[0];
    for (std::size_t i = 0; i < head_dim(); ++i) x[i] *= factor;
  }

  Sketch sketch_;
};

}  // namespace

CodecPointer make_turboquant_prod_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<TurboquantProdCodec>(options, layout);
}

CodecPointer make_qjl_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<QjlCodec>(options, layout);
}

}  // namespace kvpool::internal
