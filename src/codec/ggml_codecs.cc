// q8_0 and q4_0: ggml's blocks of 32 channels, byte for byte.
//
//   q8_0, 34 bytes: half scale | 32 signed bytes
//   q4_0, 18 bytes: half scale | 16 bytes, byte j = code j | code (j+16) << 4
//
// Unlike this library's own formats these quantise with the scale before it is rounded to a half,
// and multiply with its reciprocal: that is what makes the bytes equal.
#include <algorithm>
#include <cmath>

#include "block_io.h"
#include "codec_makers.h"

namespace kvpool::internal {
namespace {

constexpr std::size_t kGroup = 32;

// 0 where it would overflow: such a scale is 0 as a half.
float reciprocal(float scale) {
  const float inverse = 1.0F / scale;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

struct Q8Group {
  static constexpr std::size_t kBytes = 34;

  static void encode(const float* x, std::byte* out) {
    float largest = 0.0F;
    for (std::size_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float scale = largest / 127.0F;
    const float inverse = reciprocal(scale);
    store_half(out, 0, scale);
    for (std::size_t i = 0; i < kGroup; ++i) {
      out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(x[i] * inverse)));
    }
  }

  static void decode(const std::byte* in, float* x) {
    const float scale = load_half(in, 0);
    for (std::size_t i = 0; i < kGroup; ++i) {
      x[i] = scale * static_cast<float>(static_cast<std::int8_t>(in[2 + i]));
    }
  }
};

struct Q4Group {
  static constexpr std::size_t kBytes = 18;

  static void encode(const float* x, std::byte* out) {
    const float* extreme = std::max_element(
        x, x + kGroup, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float scale = *extreme / -8.0F;
    const float inverse = reciprocal(scale);
    store_half(out, 0, scale);
    const auto code = [&](std::size_t i) {
      return static_cast<unsigned>(std::clamp(std::trunc(x[i] * inverse + 8.5F), 0.0F, 15.0F));
    };
    for (std::size_t i = 0; i < kGroup / 2; ++i) {
      out[2 + i] = static_cast<std::byte>(code(i) | code(i + kGroup / 2) << 4);
    }
  }

  static void decode(const std::byte* in, float* x) {
    const float scale = load_half(in, 0);
    for (std::size_t i = 0; i < kGroup / 2; ++i) {
      const int byte = std::to_integer<int>(in[2 + i]);
      x[i] = scale * static_cast<float>((byte & 15) - 8);
      x[i + kGroup / 2] = scale * static_cast<float>((byte >> 4) - 8);
    }
  }
};

template <typename Group>
class GgmlCodec final : public BlockCodec {
 public:
  GgmlCodec(const FormatSpec& format, const BlockLayout& layout) : BlockCodec(format, layout) {}

 private:
  std::size_t n_groups() const { return layout().rows.bytes / Group::kBytes; }

  std::size_t do_encode(const float* rows, std::byte* block) const override {
    std::byte* out = block + layout().rows.offset;
    for (std::size_t i = 0; i < n_groups(); ++i) {
      Group::encode(rows + i * kGroup, out + i * Group::kBytes);
    }
    return 0;
  }

  void do_decode(const std::byte* block, float* rows) const override {
    const std::byte* in = block + layout().rows.offset;
    for (std::size_t i = 0; i < n_groups(); ++i) {
      Group::decode(in + i * Group::kBytes, rows + i * kGroup);
    }
  }
};

}  // namespace

CodecPointer make_ggml_codec(const CodecOptions& options, const BlockLayout& layout) {
  if (options.format.method == Method::kGgmlQ8) {
    return std::make_unique<GgmlCodec<Q8Group>>(options.format, layout);
  }
  return std::make_unique<GgmlCodec<Q4Group>>(options.format, layout);
}

}  // namespace kvpool::internal
