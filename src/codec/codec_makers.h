// One maker a method; make_codec() has checked the options and planned the layout.
#pragma once

#include <memory>

#include "kvpool/codec/block_codec.h"

namespace kvpool::internal {

using CodecPointer = std::unique_ptr<BlockCodec>;

CodecPointer make_float_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_int8_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_int1_codec(const CodecOptions& options, const BlockLayout& layout);
// Groups of channels of one token: int4, int2, kivi's values.
CodecPointer make_token_affine_codec(const CodecOptions& options, const BlockLayout& layout);
// Groups of tokens of one channel: kivi's keys.
CodecPointer make_channel_affine_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_turboquant_mse_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_turboquant_prod_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_qjl_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_polar_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_spectral_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_spectral_wf_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_ggml_codec(const CodecOptions& options, const BlockLayout& layout);
CodecPointer make_mlx_affine_codec(const CodecOptions& options, const BlockLayout& layout);

}  // namespace kvpool::internal
