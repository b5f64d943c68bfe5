// Any bits at all: as input that was saturated, and as blocks that nobody encoded.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "codec_fixture.h"
#include "kvpool/codec/spectral_basis.h"
#include "kvpool/codec/value_check.h"

namespace kvpool {
namespace {

using testing::CodecFixture;

constexpr std::size_t kDim = 96;

constexpr const char* kFormats[] = {"fp32",         "fp16",
                                    "bf16",         "int8",
                                    "int4",         "int2",
                                    "int1",         "kivi2",
                                    "kivi3",        "kivi5:g=16",
                                    "kivi8",        "tq1",
                                    "tq3",          "tq8:gain=ip",
                                    "tq5",          "turboquant_prod1",
                                    "qjl",          "turboquant_prod4:sketch=gauss",
                                    "polar",        "qjl:sketch=gauss,m=48",
                                    "q8_0",         "polar:levels=1234",
                                    "q4_0",         "mlx_affine2:g=32",
                                    "spectral2",    "mlx_affine5:g=32",
                                    "spectral_wf1", "spectral6:noise=1",
                                    "spectral_wf3"};

class RandomInput : public ::testing::Test {
 protected:
  template <typename Check>
  void for_each_codec(Check check) {
    const std::vector<float> vectors = testing::gaussian(512 * kDim, 1);
    const SpectralBasis basis = calibrate_spectral(vectors.data(), 512, kDim);
    for (const char* format : kFormats) {
      for (const Side side : {Side::kKey, Side::kValue}) {
        const FormatSpec spec = parse_format(format);
        const bool only_key = spec.method == Method::kQjl || spec.method == Method::kTurboquantProd;
        if (only_key && side == Side::kValue) continue;
        CodecFixture fixture(CodecOptions{
            .format = spec, .side = side, .shape = {kDim, 16}, .spectral = basis.view()});
        check(format, fixture);
      }
    }
  }

  SplitMix64 words_{99};
};

TEST_F(RandomInput, SaturatedBitsEncodeAndDecodeToFiniteValues) {
  for_each_codec([&](const char* format, CodecFixture& fixture) {
    for (int round = 0; round < 8; ++round) {
      // Narrow exponents in some rounds: else each row has one value that matters.
      const std::uint64_t mask = round % 2 == 0 ? 0xFFFFFFFFU : 0x83FFFFFFU;
      std::vector<float> rows(16 * kDim);
      for (float& value : rows) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(words_.next() & mask) ^
                                     (round % 4 == 1 ? 0x38000000U : 0U));
      }
      saturate(fixture.codec().format(), rows.data(), 16, kDim);
      fixture.encode(rows);
      for (const float value : fixture.decode()) ASSERT_TRUE(std::isfinite(value)) << format;
    }
  });
}

TEST_F(RandomInput, AnyCodesDecodeToFiniteValuesAndAnyBytesWithoutHarm) {
  for_each_codec([&](const char* format, CodecFixture& fixture) {
    fixture.encode(testing::gaussian(16 * kDim, 5));
    for (const CodePlane& plane : fixture.layout().planes) {
      for (std::size_t i = 0; i < plane.array.bytes; ++i) {
        fixture.block()[plane.array.offset + i] = static_cast<std::byte>(words_.next() >> 56);
      }
    }
    for (const float value : fixture.decode()) ASSERT_LT(std::fabs(value), 200.0F) << format;
    // Metadata may now be infinite or no number; what is asked is that no read goes astray.
    for (std::size_t i = 0; i < fixture.layout().size_bytes; ++i) {
      fixture.block()[i] = static_cast<std::byte>(words_.next() >> 56);
    }
    fixture.decode();
  });
}

}  // namespace
}  // namespace kvpool
