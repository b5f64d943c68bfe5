#include "kvpool/codec/value_check.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "codec_fixture.h"

namespace kvpool {
namespace {

using testing::CodecFixture;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string refusal(const FormatSpec& spec, const std::vector<float>& rows) {
  try {
    require_representable(spec, rows.data(), 2, rows.size() / 2, "Cache::append");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ValueCheck, RefusesWhatIsNotFiniteAndShowsIt) {
  for (const char* format : {"fp32", "fp16", "bf16", "int8", "kivi4", "tq4", "qjl", "q8_0"}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> rows(std::size_t{2} * 64, 1.0F);
      rows[64 + 5] = bad;
      const std::string text = refusal(parse_format(format), rows);
      EXPECT_EQ(text.find("[Cache::append] "), 0U) << text;
      EXPECT_NE(text.find("row 1, channel 5"), std::string::npos) << text;
    }
  }
}

TEST(ValueCheck, LimitIsThatOfTheFormat) {
  std::vector<float> rows(std::size_t{2} * 64, 0.0F);
  rows[3] = 65504.0F;
  EXPECT_EQ(refusal(parse_format("kivi4"), rows), "");
  EXPECT_EQ(refusal(parse_format("tq4"), rows), "");
  rows[3] = -65505.0F;
  EXPECT_NE(refusal(parse_format("kivi4"), rows).find("-65505"), std::string::npos);
  EXPECT_NE(refusal(parse_format("fp16"), rows), "");
  rows[3] = 3e38F;
  EXPECT_EQ(refusal(parse_format("fp32"), rows), "");
  EXPECT_EQ(refusal(parse_format("bf16"), rows), "");
  rows[3] = std::numeric_limits<float>::max();
  EXPECT_NE(refusal(parse_format("bf16"), rows), "") << "rounds to infinity";
}

TEST(ValueCheck, NormsCountWhereTheFormatStoresThem) {
  std::vector<float> rows(std::size_t{2} * 64, 0.0F);
  rows[64] = 60000.0F;
  rows[65] = 60000.0F;
  EXPECT_NE(refusal(parse_format("tq4"), rows).find("norm 84852"), std::string::npos);
  for (const char* format : {"qjl", "turboquant_prod3", "polar", "spectral3", "spectral_wf3"}) {
    EXPECT_NE(refusal(parse_format(format), rows), "") << format;
  }
  for (const char* format : {"fp16", "int8", "int1", "kivi2", "q4_0", "mlx_affine4"}) {
    EXPECT_EQ(refusal(parse_format(format), rows), "") << format;
  }
}

TEST(ValueCheck, SaturateMakesEverythingRepresentableAndCounts) {
  std::vector<float> rows = {kNan, kInfinity, -kInfinity, 1e6F, -65504.0F, 1.5F, -70000.0F, 0.0F};
  EXPECT_EQ(saturate(parse_format("kivi4"), rows.data(), 2, 4), 5U);
  EXPECT_EQ(rows, (std::vector<float>{0.0F, 65504.0F, -65504.0F, 65504.0F, -65504.0F, 1.5F,
                                      -65504.0F, 0.0F}));
  EXPECT_EQ(saturate(parse_format("kivi4"), rows.data(), 2, 4), 0U);
}

TEST(ValueCheck, EveryFormatStaysFiniteAtTheLimit) {
  for (const char* format : {"fp16", "int8", "int4", "int2", "int1", "kivi2", "kivi8", "tq1",
                             "tq1:gain=ip", "tq4:gain=norm", "turboquant_prod1", "turboquant_prod3",
                             "qjl:sketch=gauss", "qjl", "polar", "q8_0", "q4_0", "mlx_affine2"}) {
    CodecFixture fixture(format, Side::kKey, 64);
    std::vector<float> rows = testing::gaussian(std::size_t{32} * 64, 3);
    for (float& value : rows) value = value > 0.0F ? 65504.0F : -65504.0F;
    fixture.encode(rows);
    for (const float value : fixture.decode()) ASSERT_TRUE(std::isfinite(value)) << format;
  }
}

TEST(ValueCheck, EncodeCountsGainsThatItClamped) {
  CodecFixture fixture("tq4", Side::kKey, 64);
  std::vector<float> rows(std::size_t{32} * 64, 60000.0F);
  EXPECT_EQ(fixture.encode(rows), 32U);
  for (float& value : rows) value = 1.0F;
  EXPECT_EQ(fixture.encode(rows), 0U);
}

}  // namespace
}  // namespace kvpool
