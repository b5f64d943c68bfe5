#include "kvpool/codec/block_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "codec_fixture.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::gaussian;

constexpr const char* kTokenFormats[] = {"fp16",
                                         "int8",
                                         "int4",
                                         "int1",
                                         "tq3",
                                         "turboquant_prod4",
                                         "qjl",
                                         "polar",
                                         "q8_0",
                                         "q4_0",
                                         "mlx_affine3:g=32"};

TEST(BlockCodec, OneServesManyThreads) {
  const CodecFixture shared("turboquant_prod3", Side::kKey, 64);
  const std::size_t n = shared.layout().size_bytes;
  std::vector<std::vector<std::byte>> blocks(4, std::vector<std::byte>(n));
  std::vector<std::thread> threads;
  threads.reserve(blocks.size());
  for (std::vector<std::byte>& block : blocks) {
    threads.emplace_back([&shared, &block] {
      const std::vector<float> rows = gaussian(std::size_t{32} * 64, 1);
      std::vector<float> decoded(std::size_t{32} * 64);
      shared.codec().encode(rows.data(), block.data());
      shared.codec().decode(block.data(), decoded.data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<std::byte>& block : blocks) EXPECT_EQ(block, blocks[0]);
}

// What lets a cache seal blocks of any size: nothing of a token depends on the others.
TEST(BlockCodec, TokenFormatsDecodeATokenAlikeInBlocksOfAnySizeAndOnBothSides) {
  constexpr std::size_t kDim = 96;
  const std::vector<float> rows = gaussian(96 * kDim, 3);
  for (const char* format : kTokenFormats) {
    std::vector<float> decoded[3];
    for (std::size_t i = 0; i < 3; ++i) {
      CodecFixture fixture(format, Side::kKey, kDim, std::size_t{16} * (i + 1));
      decoded[i] = fixture.round_trip(rows);
    }
    EXPECT_EQ(decoded[0], decoded[1]) << format;
    EXPECT_EQ(decoded[0], decoded[2]) << format;
    if (std::string_view(format) == "qjl" || std::string_view(format) == "turboquant_prod4")
      continue;
    CodecFixture values(format, Side::kValue, kDim);
    EXPECT_EQ(values.round_trip(rows), decoded[0]) << format;
  }
}

TEST(BlockCodec, DecodedKiviKeysAreAFixedPoint) {
  // Encoding what was decoded changes little: scales are halves already.
  CodecFixture fixture("kivi4", Side::kKey, 64);
  const std::vector<float> once = fixture.round_trip(gaussian(std::size_t{32} * 64, 4));
  const std::vector<float> twice = fixture.round_trip(once);
  EXPECT_LT(testing::relative_squared_error(once, twice), 1e-6);
}

TEST(BlockCodec, KnowsItsFormatAndLayout) {
  const CodecFixture fixture("kivi4:g=64", Side::kValue, 80, 48);
  EXPECT_EQ(to_string(fixture.codec().format()), "kivi4:g=64");
  EXPECT_EQ(fixture.layout().side, Side::kValue);
  EXPECT_EQ(fixture.layout().shape, (BlockShape{80, 48}));
  EXPECT_THROW(CodecFixture("qjl", Side::kValue, 64), std::invalid_argument);
}

}  // namespace
}  // namespace kvpool
