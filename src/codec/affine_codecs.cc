// Min-max groups: of channels of one token (int4, int2, kivi's values), or of tokens of one channel
// (kivi's keys, whose outliers sit in channels).
#include <algorithm>

#include "affine.h"
#include "codec_makers.h"
#include "token_codec.h"

namespace kvpool::internal {
namespace {

constexpr std::size_t kIntGroup = 32;

class TokenAffineCodec final : public TokenCodec {
 public:
  TokenAffineCodec(const FormatSpec& format, const BlockLayout& layout)
      : TokenCodec(format, layout),
        group_(format.method == Method::kKivi ? format.group : kIntGroup),
        n_groups_((layout.shape.head_dim + group_ - 1) / group_),
        largest_code_(largest_code(layout.segments[0].bits)) {}

 private:
  std::size_t encode_row(const float* x, std::uint8_t* codes, float* metadata) const override {
    std::size_t n_clamped = 0;
    for (std::size_t group = 0; group < n_groups_; ++group) {
      const std::size_t first = group * group_;
      const std::size_t last = std::min(first + group_, head_dim());
      const auto [least, most] = std::minmax_element(x + first, x + last);
      const Affine affine = Affine::fit(*least, *most, largest_code_, &n_clamped);
      metadata[group] = affine.scale;
      metadata[n_groups_ + group] = affine.zero;
      for (std::size_t i = first; i < last; ++i) codes[i] = affine.code(x[i], largest_code_);
    }
    return n_clamped;
  }

  void decode_row(const std::uint8_t* codes, const float* metadata, float* x) const override {
    for (std::size_t i = 0; i < head_dim(); ++i) {
      const std::size_t group = i / group_;
      x[i] = Affine{metadata[group], metadata[n_groups_ + group]}.value(codes[i]);
    }
  }

  std::size_t group_;  // channels; the last group may have fewer
  std::size_t n_groups_;
  float largest_code_;
};

class ChannelAffineCodec final : public BlockCodec {
 public:
  ChannelAffineCodec(const FormatSpec& format, const BlockLayout& layout)
      : BlockCodec(format, layout), largest_code_(largest_code(format.bits)) {}

 private:
  std::size_t do_encode(const float* rows, std::byte* block) const override {
    const auto [d, n_tokens] = layout().shape;
    std::size_t n_clamped = 0;
    for (std::size_t first = 0; first < n_tokens; first += format().group) {
      const std::size_t last = std::min(first + format().group, n_tokens);
      for (std::size_t channel = 0; channel < d; ++channel) {
        float least = rows[first * d + channel];
        float most = least;
        for (std::size_t t = first + 1; t < last; ++t) {
          least = std::min(least, rows[t * d + channel]);
          most = std::max(most, rows[t * d + channel]);
        }
        const Affine affine = Affine::fit(least, most, largest_code_, &n_clamped);
        const std::size_t index = first / format().group * d + channel;
        store_half(block + layout().metadata[0].offset, index, affine.scale);
        store_half(block + layout().metadata[1].offset, index, affine.zero);
      }
    }
    encode_codes(rows, block);
    return n_clamped;
  }

  void encode_codes(const float* rows, std::byte* block) const {
    const auto [d, n_tokens] = layout().shape;
    std::uint8_t codes[kTokenRun * kMaxHeadDim];
    for (std::size_t first = 0; first < n_tokens; first += kTokenRun) {
      for (std::size_t channel = 0; channel < d; ++channel) {
        const Affine affine = load_affine(block, first, channel);
        for (std::size_t t = 0; t < kTokenRun; ++t) {
          codes[t * d + channel] = affine.code(rows[(first + t) * d + channel], largest_code_);
        }
      }
      store_codes(layout(), first, codes, block);
    }
  }

  void do_decode(const std::byte* block, float* rows) const override {
    const auto [d, n_tokens] = layout().shape;
    std::uint8_t codes[kTokenRun * kMaxHeadDim];
    for (std::size_t first = 0; first < n_tokens; first += kTokenRun) {
      load_codes(layout(), first, block, codes);
      for (std::size_t channel = 0; channel < d; ++channel) {
        const Affine affine = load_affine(block, first, channel);
        for (std::size_t t = 0; t < kTokenRun; ++t) {
          rows[(first + t) * d + channel] = affine.value(codes[t * d + channel]);
        }
      }
    }
  }

  // Groups are multiples of kTokenRun, so a run lies in one.
  Affine load_affine(const std::byte* block, std::size_t first_token, std::size_t channel) const {
    const std::size_t index = first_token / format().group * layout().shape.head_dim + channel;
    return {load_half(block + layout().metadata[0].offset, index),
            load_half(block + layout().metadata[1].offset, index)};
  }

  float largest_code_;
};

}  // namespace

CodecPointer make_token_affine_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<TokenAffineCodec>(options.format, layout);
}

CodecPointer make_channel_affine_codec(const CodecOptions& options, const BlockLayout& layout) {
  return std::make_unique<ChannelAffineCodec>(options.format, layout);
}

}  // namespace kvpool::internal
