// turboquant_mse: codes of the rotated direction, and one gain.
#include <vector>

#include "block_io.h"
#include "codec_makers.h"
#include "gaussian_coordinates.h"
#include "kvpool/codec/codebooks.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

class TurboquantMseCodec final : public TokenCodec {
 public:
  TurboquantMseCodec(const CodecOptions& options, const BlockLayout& layout)
      : TokenCodec(options.format, layout),
        rotation_(layout.shape.head_dim, options.format.seed),
        book_(normal_codebook(options.format.bits)),
        mean_(options.format.center ? options.mean : nullptr) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    const std::size_t d = head_dim();
    float centred[kMaxHeadDim];
    if (mean_ != nullptr) {
      for (std::size_t i = 0; i < d; ++i) centred[i] = x[i] - mean_[i];
      x = centred;
    }
    float coordinates[kMaxHeadDim];
    const float norm = gaussian_coordinates(rotation_, x, coordinates);
    for (std::size_t i = 0; i < d; ++i) codes[i] = book_.nearest(coordinates[i]);
    std::size_t n_clamped = 0;
    metadata[0] = round_to_half(gain(norm, coordinates, codes), &n_clamped);
    return n_clamped;
  }

  // With u = coordinates / sqrt(d) and h = centroids / sqrt(d).
  float gain(float norm, const float* coordinates, const std::uint8_t* codes) const {
    const std::size_t d = head_dim();
    if (norm == 0.0F || format().gain == Gain::kNorm) return norm;
    const float* centroids = book_.centroids;
    const float product =  // d <u, h>, above 0: a centroid has its coordinate's sign
        lane_sum(0, d, [&](std::size_t i) { return coordinates[i] * centroids[codes[i]]; });
    if (format().gain == Gain::kIp) return norm * (static_cast<float>(d) / product);
    const float energy =  // d <h, h>
        lane_sum(0, d, [&](std::size_t i) { return centroids[codes[i]] * centroids[codes[i]]; });
    return norm * (product / energy);
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    const std::size_t d = head_dim();
    if (metadata[0] == 0.0F) {
      std::fill(x, x + d, 0.0F);
    } else {
      const float factor = metadata[0] / std::sqrt(static_cast<float>(d));
      for (std::size_t i = 0; i < d; ++i) x[i] = factor * book_.centroids[codes[i]];
      rotation_.invert(x, x);
    }
    if (mean_ == nullptr) return;
    for (std::size_t i = 0; i < d; ++i) x[i] += mean_[i];
  }

  Rotation rotation_;
  ScalarCodebook book_;
  const float* mean_;  // [head_dim], or null
};

}  // namespace

CodecPointer make_turboquant_mse_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<TurboquantMseCodec>(options, layout);
}

}  // namespace kvpool::internal
