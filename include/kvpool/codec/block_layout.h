// BlockLayout: where the arrays of one KV head's block lie.
//
//   ┌ metadata[0] ┬ metadata[1] ┬ rows ┬ plane of 8, or of 4 ┬ of 2 ┬ of 1 ┐
//   each array begins at a multiple of 64 bytes; what lies between is padding, always 0.
//   (polar's radii, its metadata[0], come after the planes)
//
// Metadata are IEEE halves:
//
//   format                       metadata[0]                    metadata[1]
//   int8, int1                   scales | mean magnitudes       none
//   int4, int2, kivi             scales                         zero points
//   turboquant_mse, qjl          gains | norms                  none
//   turboquant_prod              norms                          residual norms
//   polar                        radii                          none
//   spectral, spectral_wf        RMS of signal, noise | of all  none
//   mlx_affine                   scales                         biases
//
// There are n of each per token: 1, groups of channels, head_dim/16 radii, 2 RMS. Keys are
// channel-major: [n][block_size]; values token-major: [block_size][n]. kivi's keys have theirs per
// channel and group of tokens: [groups][head_dim].
//
// Codes form channels of 1 to 8 bits: the head's channels, or angles, or rows of a sketch. Plane w
// (packing.h) holds each channel whose bits have it, in order, as one run of codes:
//
//   keys, channel-major:    [channel][token]  channel c owns block_size*w/8 bytes: q·K over tokens
//   values, token-major:    [token][channel]  token t owns n*w/8 bytes: weighted sums over channels
//
// fp32, fp16, bf16, q8_0 and q4_0 have only rows, [block_size][bytes of a token], on both sides;
// mlx_affine has its words there. A row of q8_0 or q4_0 is ggml's, of mlx_affine is mx.quantize's.
//
// A value with no owner; any thread; O(head_dim) to plan.
//
//   const BlockLayout layout = plan_layout(parse_format("kivi4"), Side::kKey, {128, 32});
//   layout.payload_bytes / 32.0;   // 80 bytes a token
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kvpool/codec/format_spec.h"

namespace kvpool {

inline constexpr std::size_t kArrayAlignment = 64;

struct BlockArray {
  std::size_t offset = 0;  // bytes from the block's start
  std::size_t bytes = 0;   // without padding; 0: the format has no such array
};

struct CodePlane {
  std::size_t width = 0;       // bits a code: 8, 4, 2 or 1
  std::size_t n_channels = 0;  // 0: no channel has this plane
  BlockArray array;
};

// Neighbouring channels of as many bits.
struct CodeSegment {
  std::size_t first = 0;
  std::size_t n_channels = 0;
  std::size_t bits = 0;  // 0 to 8
};

inline constexpr std::size_t kMaxSegments = 9;

struct BlockLayout {
  Side side = Side::kKey;
  BlockShape shape{};
  std::array<BlockArray, 2> metadata;
  BlockArray rows;
  std::array<CodePlane, 4> planes;  // widths 8, 4, 2, 1
  std::array<CodeSegment, kMaxSegments> segments;
  std::size_t n_segments = 0;
  std::size_t payload_bytes = 0;
  std::size_t size_bytes = 0;  // payload and padding; a multiple of kArrayAlignment

  std::size_t padding_bytes() const { return size_bytes - payload_bytes; }
  std::size_t n_code_channels() const {
    return n_segments == 0 ? 0
                           : segments[n_segments - 1].first + segments[n_segments - 1].n_channels;
  }
};

// channel_bits: [head_dim] descending, or null. Needed by spectral_wf, and by spectral where signal
// and noise channels differ in bits and their number is not given: there calibration decides.
// Throws std::invalid_argument where check_format() does, and where channel_bits is needed.
BlockLayout plan_layout(const FormatSpec& spec, Side side, const BlockShape& shape,
                        const std::uint8_t* channel_bits = nullptr);

}  // namespace kvpool
