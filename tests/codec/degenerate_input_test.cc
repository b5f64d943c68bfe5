// Zero vectors, constant and nearly constant groups, subnormals, dead lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "codec_fixture.h"
#include "kvpool/codec/block_codec.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::kHeadDims;

constexpr const char* kFormats[] = {"fp32",
                                    "fp16",
                                    "bf16",
                                    "int8",
                                    "int4",
                                    "int2",
                                    "int1",
                                    "kivi2",
                                    "kivi3",
                                    "kivi8",
                                    "tq1",
                                    "tq4:gain=ip",
                                    "tq8",
                                    "tq3:gain=norm",
                                    "turboquant_prod1",
                                    "turboquant_prod3:sketch=gauss",
                                    "qjl",
                                    "qjl:sketch=gauss",
                                    "polar",
                                    "polar:levels=1111",
                                    "q8_0",
                                    "q4_0",
                                    "mlx_affine2",
                                    "mlx_affine3",
                                    "mlx_affine8"};

TEST(DegenerateInput, ZeroVectorsDecodeToExactZeros) {
  for (const char* format : kFormats) {
    CodecFixture fixture(format, Side::kKey, 128);
    EXPECT_EQ(fixture.encode(std::vector<float>(std::size_t{32} * 128, 0.0F)), 0U);
    const bool negative = std::string_view(format) == "q4_0";  // ggml's scale of zeros is -0
    for (const float value : fixture.decode()) {
      ASSERT_EQ(value, 0.0F) << format;
      ASSERT_EQ(std::signbit(value), negative) << format;
    }
  }
}

TEST(DegenerateInput, AZeroVectorAmongOthersStaysZeroWhereTokensAreEncodedAlone) {
  for (const char* format : {"int8", "int4", "int1", "tq1", "tq4", "turboquant_prod2", "qjl",
                             "polar", "q8_0", "q4_0", "mlx_affine4"}) {
    CodecFixture fixture(format, Side::kKey, 64);
    std::vector<float> rows = testing::gaussian(std::size_t{32} * 64, 11);
    std::fill_n(rows.begin() + std::ptrdiff_t{7} * 64, 64, 0.0F);
    fixture.encode(rows);
    const std::vector<float> decoded = fixture.decode();
    for (std::size_t i = 0; i < 64; ++i)
      ASSERT_EQ(decoded[std::size_t{7} * 64 + i], 0.0F) << format;
  }
}

TEST(DegenerateInput, ConstantGroupsAreExact) {
  for (const char* format :
       {"int4", "int2", "kivi2", "kivi4", "kivi8", "mlx_affine2", "mlx_affine4", "mlx_affine8"}) {
    for (const Side side : {Side::kKey, Side::kValue}) {
      CodecFixture fixture(format, side, 64);
      for (const float constant : {0.0F, 3.25F, -3.25F, 0x1p-24F, -0x1.8p-14F, 65504.0F}) {
        fixture.encode(std::vector<float>(std::size_t{32} * 64, constant));
        for (const float value : fixture.decode()) {
          // mx.quantize has no scale below 1e-7, and so no constant that small.
          const double tolerance =
              std::string_view(format).starts_with("mlx") && std::fabs(constant) < 1e-4F ? 1e-6 : 0;
          ASSERT_NEAR(value, constant, tolerance) << format;
        }
      }
    }
  }
}

TEST(DegenerateInput, OneElementAnUlpHigherCostsAtMostAnUlp) {
  constexpr double kUlp = 0x1p-9;  // of a half at 3.25
  for (const char* format :
       {"int4", "int2", "kivi2", "kivi4", "kivi8", "mlx_affine2", "mlx_affine4", "mlx_affine8"}) {
    CodecFixture fixture(format, Side::kKey, 64);
    std::vector<float> rows(std::size_t{32} * 64, 3.25F);
    rows[std::size_t{5} * 64 + 9] += static_cast<float>(kUlp);
    fixture.encode(rows);
    const std::vector<float> decoded = fixture.decode();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(decoded[i], rows[i], kUlp) << format;
    }
  }
}

TEST(DegenerateInput, ConstantsThatAreNoHalvesAreWithinHalfAnUlp) {
  for (const char* format : {"kivi2", "kivi4", "int4"}) {
    CodecFixture fixture(format, Side::kValue, 64);
    for (const float constant : {3.3F, -3.3F, 0.1F, 1e-7F, 1e-30F, 1e-42F}) {
      fixture.encode(std::vector<float>(std::size_t{32} * 64, constant));
      for (const float value : fixture.decode()) {
        ASSERT_NEAR(value, constant, std::fabs(constant) * 0x1p-11F + 0x1p-25F) << format;
      }
    }
  }
}

TEST(DegenerateInput, AScaleThatRoundsToZeroHasCodesOfZero) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    CodecFixture fixture("kivi4", side, 64);
    std::vector<float> rows(std::size_t{32} * 64, 1.0F);
    for (std::size_t i = 0; i < rows.size(); i += 3) rows[i] += 0x1p-23F;
    fixture.encode(rows);
    const BlockArray plane = fixture.layout().planes[1].array;
    for (std::size_t i = 0; i < plane.bytes; ++i) {
      ASSERT_EQ(fixture.block()[plane.offset + i], std::byte{0});
    }
  }
}

TEST(DegenerateInput, TheSignOfAZeroReachesNoMetadata) {
  for (const char* format : {"kivi4", "int4", "int2"}) {
    CodecFixture fixture(format, Side::kKey, 64);
    std::vector<float> rows(std::size_t{32} * 64, 0.0F);
    fixture.encode(rows);
    const std::string expected = fixture.hex(0, fixture.layout().size_bytes);
    for (std::size_t i = 0; i < rows.size(); i += 2) rows[i] = -0.0F;
    fixture.encode(rows);
    EXPECT_EQ(fixture.hex(0, fixture.layout().size_bytes), expected) << format;
    for (float& value : rows) value = -0.0F;
    fixture.encode(rows);
    EXPECT_EQ(fixture.hex(0, fixture.layout().size_bytes), expected) << format;
  }
}

TEST(DegenerateInput, SubnormalsStayFiniteAndSmall) {
  for (const char* format : kFormats) {
    CodecFixture fixture(format, Side::kKey, 64);
    std::vector<float> rows(std::size_t{32} * 64);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = (i % 3 == 0 ? -1e-42F : 1e-41F) * static_cast<float>(i % 7);
    }
    fixture.encode(rows);
    for (const float value : fixture.decode()) ASSERT_LE(std::fabs(value), 1e-6F) << format;
  }
}

TEST(DegenerateInput, NoLaneBesidesTheHeadsOwnEntersAGroup) {
  for (const std::size_t d :
       {std::size_t{80}, std::size_t{96}, std::size_t{112}, std::size_t{576}}) {
    for (const Side side : {Side::kKey, Side::kValue}) {
      CodecFixture fixture("kivi4", side, d);
      std::vector<float> rows = testing::gaussian(32 * d, 5);
      for (float& value : rows) value = 5.5F + 0.5F * std::sin(3.0F * value);
      fixture.encode(rows);
      const std::vector<float> decoded = fixture.decode();
      for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(decoded[i], rows[i], 0.04) << d;
    }
  }
}

TEST(DegenerateInput, PaddingIsZeroWhateverTheBlockHeldBefore) {
  for (const char* format : kFormats) {
    CodecFixture fixture(format, Side::kKey, 64, 16);
    const std::vector<float> rows = testing::gaussian(std::size_t{16} * 64, 2);
    const std::size_t n = fixture.layout().size_bytes;
    fixture.encode(rows);
    const std::vector<std::byte> first(fixture.block(), fixture.block() + n);
    std::fill_n(fixture.block(), n, std::byte{0xFF});
    fixture.encode(rows);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), fixture.block())) << format;
  }
}

}  // namespace
}  // namespace kvpool
