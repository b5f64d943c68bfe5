#include "token_codec.h"

#include "block_io.h"

namespace kvpool::internal {

TokenCodec::TokenCodec(const FormatSpec& format, const BlockLayout& layout)
    : BlockCodec(format, layout),
      n_metadata_{layout.metadata[0].bytes / 2 / layout.shape.block_size,
                  layout.metadata[1].bytes / 2 / layout.shape.block_size} {}

template <typename Visit>
void TokenCodec::for_each_metadata(std::size_t token, Visit visit) const {
  for (std::size_t array = 0; array < 2; ++array) {
    const std::size_t n = n_metadata_[array];
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t index =
          layout().side == Side::kKey ? i * layout().shape.block_size + token : token * n + i;
      visit(layout().metadata[array].offset, index);
    }
  }
}

std::size_t TokenCodec::do_encode(const float* rows, std::byte* block) const {
  const std::size_t n_channels = layout().n_code_channels();
  std::size_t n_clamped = 0;
  CodeRun codes;
  for (std::size_t first = 0; first < layout().shape.block_size; first += kTokenRun) {
    for (std::size_t t = 0; t < kTokenRun; ++t) {
      float metadata[kMaxRowMetadata];
      n_clamped += encode_row(rows + (first + t) * head_dim(), codes + t * n_channels, metadata);
      const float* next = metadata;
      for_each_metadata(first + t, [&](std::size_t offset, std::size_t index) {
        store_half(block + offset, index, *next++);
      });
    }
    store_codes(layout(), first, codes, block);
  }
  return n_clamped;
}

void TokenCodec::do_decode(const std::byte* block, float* rows) const {
  const std::size_t n_channels = layout().n_code_channels();
  CodeRun codes;
  for (std::size_t first = 0; first < layout().shape.block_size; first += kTokenRun) {
    load_codes(layout(), first, block, codes);
    for (std::size_t t = 0; t < kTokenRun; ++t) {
      float metadata[kMaxRowMetadata];
      float* next = metadata;
      for_each_metadata(first + t, [&](std::size_t offset, std::size_t index) {
        *next++ = load_half(block + offset, index);
      });
      decode_row(codes + t * n_channels, metadata, rows + (first + t) * head_dim());
    }
  }
}

}  // namespace kvpool::internal
