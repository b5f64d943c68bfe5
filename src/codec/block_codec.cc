#include "kvpool/codec/block_codec.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "codec_makers.h"
#include "kvpool/codec/limits.h"

namespace kvpool {
namespace {

void check_finite(const FormatSpec& spec, const char* what, const float* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isfinite(values[i])) continue;
    throw std::invalid_argument("[make_codec] " + to_string(spec) + " needs a finite " + what +
                                ", got " + std::to_string(values[i]) + " at " + std::to_string(i));
  }
}

void check_mean(const CodecOptions& options) {
  if (!options.format.center) return;
  if (options.mean == nullptr) {
    throw std::invalid_argument("[make_codec] " + to_string(options.format) +
                                " needs a mean, got none");
  }
  check_finite(options.format, "mean", options.mean, options.shape.head_dim);
}

void check_spectral(const CodecOptions& options) {
  const SpectralView& view = options.spectral;
  if (view.axes == nullptr || view.mean == nullptr || view.eigenvalues == nullptr) {
    throw std::invalid_argument("[make_codec] " + to_string(options.format) +
                                " needs a spectral basis, got none");
  }
  const std::size_t d = options.shape.head_dim;
  check_finite(options.format, "mean", view.mean, d);
  check_finite(options.format, "basis", view.axes, d * d);
  for (std::size_t i = 0; i < d; ++i) {
    const float value = view.eigenvalues[i];
    const bool descends = i == 0 || value <= view.eigenvalues[i - 1];
    if (std::isfinite(value) && value >= 0.0F && descends) continue;
    throw std::invalid_argument(
        "[make_codec] eigenvalues must be finite, at least 0 and descending, got " +
        std::to_string(value) + " at " + std::to_string(i));
  }
}

// bits: [head_dim], of each principal axis.
void plan_spectral_bits(const CodecOptions& options, std::uint8_t* bits) {
  const FormatSpec& spec = options.format;
  const std::size_t d = options.shape.head_dim;
  if (spec.method == Method::kSpectralWf) {
    spend_bits(options.spectral.eigenvalues, d, spec.bits, bits);
    return;
  }
  const std::size_t n_signal = spec.signal_channels > 0
                                   ? spec.signal_channels
                                   : effective_channels(options.spectral.eigenvalues, d);
  for (std::size_t i = 0; i < d; ++i) {
    bits[i] = static_cast<std::uint8_t>(i < n_signal ? spec.bits : spec.noise_bits);
  }
}

BlockLayout plan(const CodecOptions& options) {
  const Method method = options.format.method;
  if (method != Method::kSpectral && method != Method::kSpectralWf) {
    return plan_layout(options.format, options.side, options.shape);
  }
  check_format(options.format, options.side, options.shape);
  check_spectral(options);
  std::uint8_t bits[kMaxHeadDim];
  plan_spectral_bits(options, bits);
  return plan_layout(options.format, options.side, options.shape, bits);
}

}  // namespace

std::size_t BlockCodec::encode(const float* rows, std::byte* block) const {
  std::memset(block, 0, layout_.size_bytes);
  return do_encode(rows, block);
}

std::unique_ptr<BlockCodec> make_codec(const CodecOptions& options) {
  const BlockLayout layout = plan(options);
  switch (options.format.method) {
    case Method::kFp32:
    case Method::kFp16:
    case Method::kBf16:
      return internal::make_float_codec(options, layout);
    case Method::kInt8:
      return internal::make_int8_codec(options, layout);
    case Method::kInt4:
    case Method::kInt2:
      return internal::make_token_affine_codec(options, layout);
    case Method::kInt1:
      return internal::make_int1_codec(options, layout);
    case Method::kKivi:
      return options.side == Side::kKey ? internal::make_channel_affine_codec(options, layout)
                                        : internal::make_token_affine_codec(options, layout);
    case Method::kTurboquantMse:
      check_mean(options);
      return internal::make_turboquant_mse_codec(options, layout);
    case Method::kTurboquantProd:
      return internal::make_turboquant_prod_codec(options, layout);
    case Method::kQjl:
      return internal::make_qjl_codec(options, layout);
    case Method::kPolar:
      return internal::make_polar_codec(options, layout);
    case Method::kSpectral:
      return internal::make_spectral_codec(options, layout);
    case Method::kSpectralWf:
      return internal::make_spectral_wf_codec(options, layout);
    case Method::kGgmlQ8:
    case Method::kGgmlQ4:
      return internal::make_ggml_codec(options, layout);
    case Method::kMlxAffine:
      return internal::make_mlx_affine_codec(options, layout);
  }
  throw std::invalid_argument("[make_codec] format has no method " +
                              std::to_string(static_cast<int>(options.format.method)));
}

}  // namespace kvpool
