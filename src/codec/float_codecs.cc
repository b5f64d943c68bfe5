// fp32, fp16, bf16: rows of floats.
#include <cstring>

#include "block_io.h"
#include "codec_makers.h"

namespace kvpool::internal {
namespace {

class Fp32Codec final : public BlockCodec {
 public:
  Fp32Codec(const FormatSpec& format, const BlockLayout& layout) : BlockCodec(format, layout) {}

 private:
  std::size_t do_encode(const float* rows, std::byte* block) const override {
    std::memcpy(block + layout().rows.offset, rows, layout().rows.bytes);
    return 0;
  }

  void do_decode(const std::byte* block, float* rows) const override {
    std::memcpy(rows, block + layout().rows.offset, layout().rows.bytes);
  }
};

// A format of 16 bits a value, given by its two conversions.
template <std::uint16_t (*kFromFloat)(float), float (*kToFloat)(std::uint16_t)>
class Float16Codec final : public BlockCodec {
 public:
  Float16Codec(const FormatSpec& format, const BlockLayout& layout) : BlockCodec(format, layout) {}

 private:
  std::size_t do_encode(const float* rows, std::byte* block) const override {
    std::byte* out = block + layout().rows.offset;
    for (std::size_t i = 0; i < layout().rows.bytes / 2; ++i) store(out, i, kFromFloat(rows[i]));
    return 0;
  }

  void do_decode(const std::byte* block, float* rows) const override {
    const std::byte* in = block + layout().rows.offset;
    for (std::size_t i = 0; i < layout().rows.bytes / 2; ++i) {
      rows[i] = kToFloat(load<std::uint16_t>(in, i));
    }
  }
};

using Fp16Codec = Float16Codec<half_from_float, float_from_half>;
using Bf16Codec = Float16Codec<bfloat16_from_float, float_from_bfloat16>;

}  // namespace

CodecPointer make_float_codec(const CodecOptions& options, const BlockLayout& layout) {
  if (options.format.method == Method::kFp32) {
    return std::make_unique<Fp32Codec>(options.format, layout);
  }
  if (options.format.method == Method::kFp16) {
    return std::make_unique<Fp16Codec>(options.format, layout);
  }
  return std::make_unique<Bf16Codec>(options.format, layout);
}

}  // namespace kvpool::internal
