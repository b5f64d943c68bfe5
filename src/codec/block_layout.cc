#include "kvpool/codec/block_layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kvpool/codec/packing.h"

namespace kvpool {
namespace {

constexpr std::size_t kHalfBytes = 2;
constexpr std::size_t kIntGroup = 32;  // channels that int4, int2 and int1 share metadata over

std::size_t groups_of(std::size_t n, std::size_t group) { return (n + group - 1) / group; }

// Halves in each metadata array of the block.
std::array<std::size_t, 2> metadata_counts(const FormatSpec& spec, Side side,
                                           const BlockShape& shape) {
  const std::size_t d = shape.head_dim;
  const std::size_t n_tokens = shape.block_size;
  switch (spec.method) {
    case Method::kInt8:
    case Method::kTurboquantMse:
    case Method::kQjl:
    case Method::kSpectralWf:
      return {n_tokens, 0};
    case Method::kTurboquantProd:
      return {n_tokens, n_tokens};
    case Method::kInt1:
      return {n_tokens * groups_of(d, kIntGroup), 0};
    case Method::kInt4:
    case Method::kInt2:
      return {n_tokens * groups_of(d, kIntGroup), n_tokens * groups_of(d, kIntGroup)};
    case Method::kKivi: {
      const std::size_t n = side == Side::kKey ? groups_of(n_tokens, spec.group) * d
                                               : n_tokens * groups_of(d, spec.group);
      return {n, n};
    }
    case Method::kPolar:
      return {n_tokens * (d / 16), 0};
    case Method::kSpectral:
      return {n_tokens * 2, 0};
    case Method::kMlxAffine:
      return {n_tokens * (d / spec.group), n_tokens * (d / spec.group)};
    case Method::kFp32:
    case Method::kFp16:
    case Method::kBf16:
    case Method::kGgmlQ8:
    case Method::kGgmlQ4:
      break;
  }
  return {0, 0};
}

// Bytes of one token's row; 0 where the format has planes instead.
std::size_t row_bytes(const FormatSpec& spec, std::size_t d) {
  switch (spec.method) {
    case Method::kFp32:
      return d * 4;
    case Method::kFp16:
    case Method::kBf16:
      return d * 2;
    case Method::kGgmlQ8:
      return d / 32 * 34;
    case Method::kGgmlQ4:
      return d / 32 * 18;
    case Method::kMlxAffine:
      return d * spec.bits / 8;
    default:
      return 0;
  }
}

// Appends channels; equal bits continue the last segment.
void add_channels(std::size_t n, std::size_t bits, BlockLayout* layout) {
  if (n == 0) return;
  if (layout->n_segments > 0 && layout->segments[layout->n_segments - 1].bits == bits) {
    layout->segments[layout->n_segments - 1].n_channels += n;
    return;
  }
  const std::size_t first = layout->n_code_channels();
  layout->segments[layout->n_segments++] = {.first = first, .n_channels = n, .bits = bits};
}

void add_spectral_channels(const FormatSpec& spec, const std::uint8_t* channel_bits,
                           BlockLayout* layout) {
  const std::size_t d = layout->shape.head_dim;
  if (channel_bits != nullptr) {
    for (std::size_t i = 0; i < d; ++i) {
      if (channel_bits[i] > 8 || (i > 0 && channel_bits[i] > channel_bits[i - 1])) {
        throw std::invalid_argument("[plan_layout] channel_bits must descend from at most 8, got " +
                                    std::to_string(channel_bits[i]) + " at channel " +
                                    std::to_string(i));
      }
      add_channels(1, channel_bits[i], layout);
    }
  } else if (spec.method == Method::kSpectral && spec.bits == spec.noise_bits) {
    add_channels(d, spec.bits, layout);
  } else if (spec.method == Method::kSpectral && spec.signal_channels > 0) {
    add_channels(spec.signal_channels, spec.bits, layout);
    add_channels(d - spec.signal_channels, spec.noise_bits, layout);
  } else {
    throw std::invalid_argument("[plan_layout] the layout of " + to_string(spec) +
                                " depends on calibration: channel_bits must not be null");
  }
}

void add_code_channels(const FormatSpec& spec, const std::uint8_t* channel_bits,
                       BlockLayout* layout) {
  const std::size_t d = layout->shape.head_dim;
  switch (spec.method) {
    case Method::kInt8:
      return add_channels(d, 8, layout);
    case Method::kInt4:
      return add_channels(d, 4, layout);
    case Method::kInt2:
      return add_channels(d, 2, layout);
    case Method::kInt1:
      return add_channels(d, 1, layout);
    case Method::kKivi:
    case Method::kTurboquantMse:
      return add_channels(d, spec.bits, layout);
    case Method::kTurboquantProd:
      add_channels(d, spec.bits - 1, layout);
      return add_channels(sketch_rows(spec, d), 1, layout);
    case Method::kQjl:
      return add_channels(sketch_rows(spec, d), 1, layout);
    case Method::kPolar:
      for (std::size_t i = 0; i < 4; ++i) add_channels(d >> (i + 1), spec.level_bits[i], layout);
      return;
    case Method::kSpectral:
    case Method::kSpectralWf:
      return add_spectral_channels(spec, channel_bits, layout);
    case Method::kFp32:
    case Method::kFp16:
    case Method::kBf16:
    case Method::kGgmlQ8:
    case Method::kGgmlQ4:
    case Method::kMlxAffine:
      return;
  }
}

void place(std::size_t bytes, BlockArray* array, BlockLayout* layout) {
  *array = {.offset = layout->size_bytes, .bytes = bytes};
  layout->payload_bytes += bytes;
  layout->size_bytes += (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

void place_planes(BlockLayout* layout) {
  for (std::size_t i = 0; i < layout->planes.size(); ++i) {
    CodePlane& plane = layout->planes[i];
    plane.width = kPlaneWidths[i];
    for (std::size_t s = 0; s < layout->n_segments; ++s) {
      const CodeSegment& segment = layout->segments[s];
      if (has_plane(segment.bits, plane.width)) plane.n_channels += segment.n_channels;
    }
    place(layout->shape.block_size * plane.n_channels * plane.width / 8, &plane.array, layout);
  }
}

}  // namespace

BlockLayout plan_layout(const FormatSpec& spec, Side side, const BlockShape& shape,
                        const std::uint8_t* channel_bits) {
  check_format(spec, side, shape);
  BlockLayout layout;
  layout.side = side;
  layout.shape = shape;
  add_code_channels(spec, channel_bits, &layout);
  const std::array<std::size_t, 2> counts = metadata_counts(spec, side, shape);
  const bool planes_first = spec.method == Method::kPolar;
  if (planes_first) place_planes(&layout);
  place(counts[0] * kHalfBytes, &layout.metadata[0], &layout);
  place(counts[1] * kHalfBytes, &layout.metadata[1], &layout);
  place(shape.block_size * row_bytes(spec, shape.head_dim), &layout.rows, &layout);
  if (!planes_first) place_planes(&layout);
  return layout;
}

}  // namespace kvpool
