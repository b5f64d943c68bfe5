// The sizes that codecs take. They bound the scratch that encoding and decoding keep on the stack
// (below 128 KiB), which is why no call of a codec allocates.
//
//   static_assert(kMaxHeadDim % kTokenRun == 0);
#pragma once

#include <cstddef>

namespace kvpool {

// Head dimensions are multiples of 16 up to this.
inline constexpr std::size_t kMaxHeadDim = 1024;

// Rows of a sign sketch, also multiples of 16.
inline constexpr std::size_t kMaxSketchRows = 4096;

// Codes are packed in runs of this many tokens: a block's size is a multiple of it, and a run's
// codes fill whole bytes at every width.
inline constexpr std::size_t kTokenRun = 16;

}  // namespace kvpool
