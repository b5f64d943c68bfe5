#include "code_planes.h"

#include <algorithm>

#include "kvpool/codec/packing.h"

namespace kvpool::internal {
namespace {

// Calls visit(channel, shift) for each channel of a plane, in order.
template <typename Visit>
void for_each_channel(const BlockLayout& layout, const CodePlane& plane, Visit visit) {
  for (std::size_t s = 0; s < layout.n_segments; ++s) {
    const CodeSegment& segment = layout.segments[s];
    if (!has_plane(segment.bits, plane.width)) continue;
    const std::size_t shift = plane_shift(segment.bits, plane.width);
    for (std::size_t i = 0; i < segment.n_channels; ++i) visit(segment.first + i, shift);
  }
}

std::uint8_t cut(std::uint8_t code, std::size_t shift, std::size_t width) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(code) >> shift & ((1U << width) - 1U));
}

std::uint8_t join(std::uint8_t code, std::uint8_t value, std::size_t shift) {
  return static_cast<std::uint8_t>(code | static_cast<unsigned>(value) << shift);
}

// Where the run's codes of one channel (keys) or of all (values) begin within the plane.
std::size_t byte_offset(const BlockLayout& layout, const CodePlane& plane, std::size_t first_token,
                        std::size_t rank) {
  const std::size_t code = layout.side == Side::kKey ? rank * layout.shape.block_size + first_token
                                                     : first_token * plane.n_channels;
  return plane.array.offset + code * plane.width / 8;
}

void store_channel_major(const BlockLayout& layout, const CodePlane& plane, std::size_t first_token,
                         const std::uint8_t* codes, std::byte* block) {
  const std::size_t n = layout.n_code_channels();
  std::size_t rank = 0;
  for_each_channel(layout, plane, [&](std::size_t channel, std::size_t shift) {
    std::uint8_t run[kTokenRun];
    for (std::size_t t = 0; t < kTokenRun; ++t) {
      run[t] = cut(codes[t * n + channel], shift, plane.width);
    }
    pack_plane(run, kTokenRun, plane.width, block + byte_offset(layout, plane, first_token, rank));
    ++rank;
  });
}

void store_token_major(const BlockLayout& layout, const CodePlane& plane, std::size_t first_token,
                       const std::uint8_t* codes, std::byte* block) {
  const std::size_t n = layout.n_code_channels();
  std::uint8_t run[kTokenRun * kMaxHeadDim];
  std::size_t i = 0;
  for (std::size_t t = 0; t < kTokenRun; ++t) {
    for_each_channel(layout, plane, [&](std::size_t channel, std::size_t shift) {
      run[i++] = cut(codes[t * n + channel], shift, plane.width);
    });
  }
  pack_plane(run, i, plane.width, block + byte_offset(layout, plane, first_token, 0));
}

void load_channel_major(const BlockLayout& layout, const CodePlane& plane, std::size_t first_token,
                        const std::byte* block, std::uint8_t* codes) {
  const std::size_t n = layout.n_code_channels();
  std::size_t rank = 0;
  for_each_channel(layout, plane, [&](std::size_t channel, std::size_t shift) {
    std::uint8_t run[kTokenRun];
    unpack_plane(block + byte_offset(layout, plane, first_token, rank), kTokenRun, plane.width,
                 run);
    for (std::size_t t = 0; t < kTokenRun; ++t) {
      codes[t * n + channel] = join(codes[t * n + channel], run[t], shift);
    }
    ++rank;
  });
}

void load_token_major(const BlockLayout& layout, const CodePlane& plane, std::size_t first_token,
                      const std::byte* block, std::uint8_t* codes) {
  const std::size_t n = layout.n_code_channels();
  std::uint8_t run[kTokenRun * kMaxHeadDim];
  unpack_plane(block + byte_offset(layout, plane, first_token, 0), kTokenRun * plane.n_channels,
               plane.width, run);
  std::size_t i = 0;
  for (std::size_t t = 0; t < kTokenRun; ++t) {
    for_each_channel(layout, plane, [&](std::size_t channel, std::size_t shift) {
      codes[t * n + channel] = join(codes[t * n + channel], run[i++], shift);
    });
  }
}

}  // namespace

void store_codes(const BlockLayout& layout, std::size_t first_token, const std::uint8_t* codes,
                 std::byte* block) {
  for (const CodePlane& plane : layout.planes) {
    if (plane.n_channels == 0) continue;
    if (layout.side == Side::kKey) {
      store_channel_major(layout, plane, first_token, codes, block);
    } else {
      store_token_major(layout, plane, first_token, codes, block);
    }
  }
}

void load_codes(const BlockLayout& layout, std::size_t first_token, const std::byte* block,
                std::uint8_t* codes) {
  std::fill(codes, codes + kTokenRun * layout.n_code_channels(), std::uint8_t{0});
  for (const CodePlane& plane : layout.planes) {
    if (plane.n_channels == 0) continue;
    if (layout.side == Side::kKey) {
      load_channel_major(layout, plane, first_token, block, codes);
    } else {
      load_token_major(layout, plane, first_token, block, codes);
    }
  }
}

}  // namespace kvpool::internal
