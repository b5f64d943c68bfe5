#include "kvpool/codec/format_spec.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace kvpool {
namespace {

// The error's text; empty where nothing is thrown.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ParseFormat, EveryCanonicalNameComesBack) {
  for (const char* name : {"fp32",
                           "fp16",
                           "bf16",
                           "int8",
                           "int4",
                           "int2",
                           "int1",
                           "kivi2",
                           "kivi8",
                           "kivi4:g=64",
                           "turboquant_mse1",
                           "turboquant_mse8:gain=ip",
                           "turboquant_mse4:gain=norm,center=1,seed=18446744073709551615",
                           "turboquant_prod3",
                           "turboquant_prod1:sketch=gauss,m=256,seed=7",
                           "qjl",
                           "qjl:sketch=gauss,m=48",
                           "polar",
                           "polar:levels=3333,seed=1",
                           "spectral3",
                           "spectral4:noise=2,signal=12",
                           "spectral_wf3",
                           "q8_0",
                           "q4_0",
                           "mlx_affine4",
                           "mlx_affine3:g=32"}) {
    EXPECT_EQ(to_string(parse_format(name)), name);
    EXPECT_EQ(parse_format(to_string(parse_format(name))), parse_format(name));
  }
}

TEST(ParseFormat, AliasesAndSpelledOutDefaultsAreTheSameFormat) {
  EXPECT_EQ(to_string(parse_format("tq4")), "turboquant_mse4");
  EXPECT_EQ(to_string(parse_format("tq2:gain=mse,center=0,seed=42")), "turboquant_mse2");
  EXPECT_EQ(to_string(parse_format("kivi4:g=32")), "kivi4");
  EXPECT_EQ(to_string(parse_format("mlx_affine4:g=64")), "mlx_affine4");
  EXPECT_EQ(to_string(parse_format("polar:levels=4222")), "polar");
  EXPECT_EQ(to_string(parse_format("spectral3:noise=3")), "spectral3");
}

TEST(ParseFormat, FieldsAreWhatTheStringSays) {
  const FormatSpec kivi = parse_format("kivi4:g=64");
  EXPECT_EQ(kivi.method, Method::kKivi);
  EXPECT_EQ(kivi.bits, 4U);
  EXPECT_EQ(kivi.group, 64U);
  const FormatSpec prod = parse_format("turboquant_prod3:sketch=gauss,m=256,seed=9");
  EXPECT_EQ(prod.sketch, SketchKind::kGaussian);
  EXPECT_EQ(prod.sketch_rows, 256U);
  EXPECT_EQ(prod.seed, 9U);
  EXPECT_EQ(sketch_rows(prod, 128), 256U);
  EXPECT_EQ(sketch_rows(parse_format("qjl"), 128), 128U);
  EXPECT_EQ(parse_format("polar:levels=4321").level_bits,
            (std::array<std::uint8_t, 4>{4, 3, 2, 1}));
}

TEST(ParseFormat, UnknownOnesAreRefusedWithTheListOfValidOnes) {
  for (const char* name : {"", "fp8", "kivi", "kivi1", "kivi7", "kivi42", "KIVI4",
                           "turboquant_mse0", "turboquant_mse9", "tq", "prod3", "q8", "spectral",
                           "polar4", " fp16", "mlx_affine7", "int3", "4"}) {
    const std::string text = refusal([&] { parse_format(name); });
    EXPECT_NE(text.find("[parse_format] unknown format \"" + std::string(name) + "\""),
              std::string::npos)
        << text;
    for (const char* valid : {"fp32", "kivi2/3/4/5/6/8", "turboquant_mse1/2/3/4/5/6/7/8 (alias tq)",
                              "spectral_wf", "mlx_affine2"}) {
      EXPECT_NE(text.find(valid), std::string::npos) << text;
    }
  }
}

TEST(ParseFormat, BadOptionsAreRefusedWithTheOptionsThatTheFormatHas) {
  for (const char* name :
       {"kivi4:", "kivi4:g", "kivi4:g=", "kivi4:g=48", "kivi4:g=1", "kivi4:g=6", "kivi4:g=64,g=64",
        "kivi4:seed=1", "kivi4:g=64,", "kivi4:g=-32", "kivi4:g= 32", "kivi4:g=64:g=32"}) {
    const std::string text = refusal([&] { parse_format(name); });
    EXPECT_NE(text.find("bad option"), std::string::npos) << name << ": " << text;
    EXPECT_NE(text.find("g= 16, 32, 64, 128"), std::string::npos) << text;
  }
  for (const char* name :
       {"tq4:gain=max", "tq4:center=2", "tq4:seed=-1", "tq4:m=64", "tq4:seed=18446744073709551616",
        "qjl:m=40", "qjl:m=0", "qjl:sketch=haar", "polar:levels=422", "polar:levels=5222",
        "polar:levels=0222", "spectral3:noise=9", "spectral3:noise=0", "spectral3:signal=0",
        "mlx_affine4:g=16", "fp16:seed=1", "q8_0:g=32"}) {
    EXPECT_NE(refusal([&] { parse_format(name); }).find("bad option"), std::string::npos) << name;
  }
}

TEST(CheckFormat, KeyFormatsAreRefusedForValues) {
  for (const char* name : {"qjl", "turboquant_prod3", "tq4:center=1"}) {
    const FormatSpec spec = parse_format(name);
    EXPECT_NO_THROW(check_format(spec, Side::kKey, {128, 32})) << name;
    const std::string text = refusal([&] { check_format(spec, Side::kValue, {128, 32}); });
    EXPECT_NE(text.find(to_string(spec)), std::string::npos) << text;
    EXPECT_NE(text.find("keys"), std::string::npos) << text;
  }
}

TEST(CheckFormat, ImpossibleShapesAreRefusedWithWhatIsNeeded) {
  const struct {
    const char* format;
    BlockShape shape;
    const char* needs;
  } cases[] = {{"fp16", {72, 32}, "head_dim that is a positive multiple of 16 up to 1024, got 72"},
               {"fp16", {0, 32}, "got 0"},
               {"fp16", {1040, 32}, "got 1040"},
               {"fp16", {64, 24}, "block_size that is a positive multiple of 16, got 24"},
               {"fp16", {64, 0}, "block_size"},
               {"q8_0", {80, 32}, "multiple of 32"},
               {"q4_0", {80, 32}, "multiple of 32"},
               {"mlx_affine4", {96, 32}, "multiple of 64"},
               {"mlx_affine4:g=32", {80, 32}, "multiple of 32"},
               {"qjl:m=192", {128, 32}, "multiple of 128"},
               {"turboquant_prod3:sketch=gauss,m=192", {128, 32}, "multiple of 128"},
               {"qjl:m=8192", {128, 32}, "up to 4096"},
               {"spectral4:noise=2,signal=64", {64, 32}, "fewer signal channels"},
               {"spectral2:noise=4", {64, 32}, "at most 2 noise bits"}};
  for (const auto& expected : cases) {
    const std::string text =
        refusal([&] { check_format(parse_format(expected.format), Side::kKey, expected.shape); });
    EXPECT_NE(text.find(expected.needs), std::string::npos) << expected.format << ": " << text;
  }
  EXPECT_NO_THROW(check_format(parse_format("qjl:sketch=gauss,m=192"), Side::kKey, {128, 32}));
  EXPECT_NO_THROW(check_format(parse_format("mlx_affine4:g=32"), Side::kValue, {96, 32}));
}

}  // namespace
}  // namespace kvpool
