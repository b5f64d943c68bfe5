// spectral, spectral_wf: codes of the coordinates along calibrated principal axes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "block_io.h"
#include "codec_makers.h"
#include "kvpool/codec/codebooks.h"
#include "kvpool/codec/reduction.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

// y = axes (x - mean), [head_dim].
void to_axes(const SpectralView& spectral, const float* x, std::size_t d, float* y) {
  float centred[kMaxHeadDim];
  for (std::size_t i = 0; i < d; ++i) centred[i] = x[i] - spectral.mean[i];
  for (std::size_t i = 0; i < d; ++i) {
    const float* axis = spectral.axes + i * d;
    y[i] = lane_sum(0, d, [&](std::size_t j) { return axis[j] * centred[j]; });
  }
}

// x = axes^T y + mean.
void from_axes(const SpectralView& spectral, const float* y, std::size_t d, float* x) {
  for (std::size_t j = 0; j < d; ++j) x[j] = 0.0F;
  for (std::size_t i = 0; i < d; ++i) {
    const float* axis = spectral.axes + i * d;
    for (std::size_t j = 0; j < d; ++j) x[j] += axis[j] * y[i];
  }
  for (std::size_t j = 0; j < d; ++j) x[j] += spectral.mean[j];
}

float rms_of(const float* y, std::size_t first, std::size_t last) {
  const float squares = lane_sum(first, last, [&](std::size_t i) { return y[i] * y[i]; });
  return std::sqrt(squares / static_cast<float>(last - first));
}

// Codes of y[first, last) over their RMS, a half.
void encode_range(const float* y, std::size_t first, std::size_t last, std::size_t bits, float rms,
                  std::uint8_t* codes) {
  const ScalarCodebook book = normal_codebook(bits);
  for (std::size_t i = first; i < last; ++i) {
    codes[i] = rms == 0.0F ? std::uint8_t{0} : book.nearest(y[i] / rms);
  }
}

class SpectralCodec final : public TokenCodec {
 public:
  SpectralCodec(const CodecOptions& options, const BlockLayout& layout, std::size_t n_signal)
      : TokenCodec(options.format, layout), spectral_(options.spectral), n_signal_(n_signal) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    const std::size_t d = head_dim();
    float y[kMaxHeadDim];
    to_axes(spectral_, x, d, y);
    std::size_t n_clamped = 0;
    metadata[0] = round_to_half(rms_of(y, 0, n_signal_), &n_clamped);
    metadata[1] = round_to_half(rms_of(y, n_signal_, d), &n_clamped);
    encode_range(y, 0, n_signal_, format().bits, metadata[0], codes);
    encode_range(y, n_signal_, d, format().noise_bits, metadata[1], codes);
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    const ScalarCodebook signal = normal_codebook(format().bits);
    const ScalarCodebook noise = normal_codebook(format().noise_bits);
    float y[kMaxHeadDim];
    for (std::size_t i = 0; i < head_dim(); ++i) {
      y[i] = i < n_signal_ ? metadata[0] * signal.centroids[codes[i]]
                           : metadata[1] * noise.centroids[codes[i]];
    }
    from_axes(spectral_, y, head_dim(), x);
  }

  SpectralView spectral_;
  std::size_t n_signal_;
};

class SpectralWfCodec final : public TokenCodec {
 public:
  SpectralWfCodec(const CodecOptions& options, const BlockLayout& layout)
      : TokenCodec(options.format, layout), spectral_(options.spectral), n_coded_(0) {
    for (std::size_t s = 0; s < layout.n_segments; ++s) {
      if (layout.segments[s].bits > 0) n_coded_ += layout.segments[s].n_channels;
    }
    for (std::size_t i = 0; i < layout.shape.head_dim; ++i) {
      deviations_.push_back(std::sqrt(spectral_.eigenvalues[i]));
    }
  }

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    const std::size_t d = head_dim();
    float z[kMaxHeadDim];
    to_axes(spectral_, x, d, z);
    for (std::size_t i = 0; i < d; ++i)
      z[i] = deviations_[i] == 0.0F ? 0.0F : z[i] / deviations_[i];
    std::size_t n_clamped = 0;
    metadata[0] = round_to_half(rms_of(z, 0, n_coded_), &n_clamped);
    std::fill(codes, codes + d, std::uint8_t{0});
    for (std::size_t s = 0; s < layout().n_segments; ++s) {
      const CodeSegment& segment = layout().segments[s];
      if (segment.bits == 0) continue;
      encode_range(z, segment.first, segment.first + segment.n_channels, segment.bits, metadata[0],
                   codes);
    }
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    float y[kMaxHeadDim] = {};
    for (std::size_t s = 0; s < layout().n_segments; ++s) {
      const CodeSegment& segment = layout().segments[s];
      if (segment.bits == 0) continue;
      const ScalarCodebook book = normal_codebook(segment.bits);
      for (std::size_t i = segment.first; i < segment.first + segment.n_channels; ++i) {
        y[i] = metadata[0] * (deviations_[i] * book.centroids[codes[i]]);
      }
    }
    from_axes(spectral_, y, head_dim(), x);
  }

  SpectralView spectral_;
  std::size_t n_coded_;  // channels with at least one bit; they come first
  std::vector<float> deviations_;
};

}  // namespace

CodecPointer make_spectral_codec(const CodecOptions& options, const BlockLayout& layout) {
  const std::size_t n_signal =
      options.format.signal_channels > 0
          ? options.format.signal_channels
          : effective_channels(options.spectral.eigenvalues, options.shape.head_dim);
  return std::make_unique<SpectralCodec>(options, layout, n_signal);
}

CodecPointer make_spectral_wf_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<SpectralWfCodec>(options, layout);
}

}  // namespace kvpool::internal
