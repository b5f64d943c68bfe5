// Codes of a run of tokens into and out of a block's planes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvpool/codec/block_layout.h"
#include "kvpool/codec/limits.h"

namespace kvpool::internal {

// The most code channels of a block: turboquant_prod's codes and its sketch.
inline constexpr std::size_t kMaxCodeChannels = kMaxHeadDim + kMaxSketchRows;

// The codes of kTokenRun tokens, [kTokenRun][n_code_channels].
using CodeRun = std::uint8_t[kTokenRun * kMaxCodeChannels];

// first_token: a multiple of kTokenRun.
void store_codes(const BlockLayout& layout, std::size_t first_token, const std::uint8_t* codes,
                 std::byte* block);
void load_codes(const BlockLayout& layout, std::size_t first_token, const std::byte* block,
                std::uint8_t* codes);

}  // namespace kvpool::internal
