// TokenCodec: the part that is common to formats which encode each token by itself.
//
// Such a format turns one row into codes and metadata; where these lie in a block is the layout's
// business. Hence a token's codes don't depend on its neighbours, and K and V differ by layout
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "code_planes.h"
#include "kvpool/codec/block_codec.h"
#include "kvpool/codec/limits.h"

namespace kvpool::internal {

// Scale and zero point of groups of at least 16 channels.
inline constexpr std::size_t kMaxRowMetadata = 2 * (kMaxHeadDim / 16);

class TokenCodec : public BlockCodec {
 protected:
  TokenCodec(const FormatSpec& format, const BlockLayout& layout);

  std::size_t head_dim() const { return layout().shape.head_dim; }

 private:
  // x: [head_dim]; codes: [n_code_channels]; metadata: those of the first array, then those of the
  // second, each a value that a half holds. Returns how many were clamped.
  virtual std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const = 0;
  virtual void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const = 0;

  std::size_t do_encode(const float* rows, std::byte* block) const final;
  void do_decode(const std::byte* block, float* rows) const final;

  // Calls visit(array's offset, index within it) for each of a token's metadata.
  template <typename Visit>
  void for_each_metadata(std::size_t token, Visit visit) const;

  std::size_t n_metadata_[2];  // per token, of each array
};

}  // namespace kvpool::internal
