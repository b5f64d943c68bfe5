// BlockCodec: encodes and decodes the blocks of one format, side and shape.
//
// A block is what BlockLayout says; its bytes belong to the caller, and so does everything the
// codec is given a pointer to. The codec holds what a format needs beside its blocks: a rotation, a
// sketch, bits of channels. Bytes are decided by exact arithmetic only (IEEE float additions,
// multiplications, divisions and square roots in a fixed order, comparisons with committed tables),
// so the same rows give the same bytes on every machine and with every compiler.
//
// Rows are fp32 and must be representable (value_check.h): that is decided once, at the door, where
// a caller can still refuse or count. Encoding itself only clamps derived metadata, as of a vector
// whose gain exceeds 65504 though its norm does not.
//
// Immutable: any number of threads. encode and decode: O(block_size * head_dim) times what the
// format's transform costs; no allocation; below 128 KiB of stack.
//
//   const auto codec = make_codec({.format = parse_format("kivi4"), .side = Side::kKey,
//                                  .shape = {.head_dim = 128, .block_size = 32}});
//   codec->encode(rows, block);    // rows: [32][128]; block: [codec->layout().size_bytes]
//   codec->decode(block, rows);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kvpool/codec/block_layout.h"
#include "kvpool/codec/format_spec.h"
#include "kvpool/codec/spectral_basis.h"

namespace kvpool {

class BlockCodec {
 public:
  virtual ~BlockCodec() = default;
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;

  const FormatSpec& format() const { return format_; }
  const BlockLayout& layout() const { return layout_; }

  // Writes all size_bytes of the block, padding included. rows: [block_size][head_dim]; block:
  // aligned to kArrayAlignment. Returns how many metadata were clamped to +-65504.
  std::size_t encode(const float* rows, std::byte* block) const;

  // rows: [block_size][head_dim]. Of formats that hold keys only: the vectors whose dot products
  // with a query are the format's estimates.
  void decode(const std::byte* block, float* rows) const { do_decode(block, rows); }

 protected:
  BlockCodec(const FormatSpec& format, const BlockLayout& layout)
      : format_(format), layout_(layout) {}

 private:
  // The block has been cleared.
  virtual std::size_t do_encode(const float* rows, std::byte* block) const = 0;
  virtual void do_decode(const std::byte* block, float* rows) const = 0;

  FormatSpec format_;
  BlockLayout layout_;
};

// What is pointed at must outlive the codec.
struct CodecOptions {
  FormatSpec format;
  Side side = Side::kKey;
  BlockShape shape{};
  const float* mean = nullptr;  // [head_dim]: turboquant_mse with center=1
  SpectralView spectral{};      // spectral, spectral_wf
};

// Throws std::invalid_argument where check_format() does, where side data are missing or not
// finite, and where eigenvalues are negative or not descending.
std::unique_ptr<BlockCodec> make_codec(const CodecOptions& options);

}  // namespace kvpool
