// Bytes that other implementations agree on.
#include <gtest/gtest.h>

#include <algorithm>

#include "codec/block_io.h"
#include "codec/code_planes.h"
#include "codec_fixture.h"
#include "kvpool/codec/packing.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::ramp;

// A block of values whose first token is the ramp, the others 0.
std::vector<float> ramp_rows(std::size_t d) {
  std::vector<float> rows = ramp(d);
  rows.resize(32 * d, 0.0F);
  return rows;
}

// The first token's codes of the channels from `first` on.
std::vector<int> codes_of_first_token(CodecFixture& fixture, std::size_t first, std::size_t n) {
  const std::size_t n_channels = fixture.layout().n_code_channels();
  std::vector<std::uint8_t> codes(16 * n_channels);
  internal::load_codes(fixture.layout(), 0, fixture.block(), codes.data());
  const auto begin = codes.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

float metadata_of_first_token(CodecFixture& fixture, std::size_t array, std::size_t i) {
  const bool key = fixture.layout().side == Side::kKey;
  return internal::load_half(fixture.block() + fixture.layout().metadata[array].offset,
                             key ? i * fixture.layout().shape.block_size : i);
}

TEST(GoldenBytes, KiviColumn) {
  CodecFixture fixture("kivi2", Side::kKey, 64);
  std::vector<float> rows(std::size_t{32} * 64, 0.0F);
  for (std::size_t t = 0; t < 32; ++t) rows[t * 64 + 5] = static_cast<float>(7 * t % 32);
  fixture.encode(rows);
  const BlockLayout& layout = fixture.layout();
  EXPECT_EQ(internal::load_half(fixture.block() + layout.metadata[0].offset, 5), 10.3359375F);
  EXPECT_EQ(internal::load_half(fixture.block() + layout.metadata[1].offset, 5), 0.0F);
  EXPECT_EQ(fixture.hex(layout.planes[2].array.offset + std::size_t{5} * 8, 8), "94935e4e3a39e5a4");
}

TEST(GoldenBytes, TurboquantMseRamp) {
  CodecFixture two("turboquant_mse2", Side::kValue, 64);
  two.encode(ramp_rows(64));
  EXPECT_EQ(codes_of_first_token(two, 0, 16),
            (std::vector<int>{0, 2, 0, 0, 2, 1, 1, 2, 3, 1, 3, 2, 2, 2, 3, 0}));
  EXPECT_EQ(metadata_of_first_token(two, 0, 0), 4.5234375F);
  EXPECT_EQ(two.hex(two.layout().planes[2].array.offset, 4), "0896b73a");

  CodecFixture four("tq4", Side::kValue, 64);
  four.encode(ramp_rows(64));
  EXPECT_EQ(codes_of_first_token(four, 0, 16),
            (std::vector<int>{2, 9, 2, 2, 9, 5, 7, 8, 12, 5, 13, 8, 8, 9, 11, 2}));
  EXPECT_EQ(metadata_of_first_token(four, 0, 0), 4.55859375F);
  EXPECT_EQ(four.hex(four.layout().planes[1].array.offset, 8), "922259875c8d982b");
}

// The first token's sketch bits as a run of their own, in hexadecimal.
std::string sketch_hex(CodecFixture& fixture, std::size_t n) {
  const std::vector<int> bits = codes_of_first_token(fixture, 0, n);
  std::string text;
  for (std::size_t i = 0; i < n; i += 4) {
    const std::size_t nibble = i % 8 == 0 ? i + 4 : i - 4;  // the high one is written first
    const int value =
        bits[nibble] + 2 * bits[nibble + 1] + 4 * bits[nibble + 2] + 8 * bits[nibble + 3];
    text += "0123456789abcdef"[value];
  }
  return text;
}

TEST(GoldenBytes, QjlRamp) {
  CodecFixture gauss("qjl:sketch=gauss", Side::kKey, 64);
  gauss.encode(ramp_rows(64));
  EXPECT_EQ(sketch_hex(gauss, 64), "4768565f5d851e18");
  EXPECT_EQ(metadata_of_first_token(gauss, 0, 0), 4.671875F);

  CodecFixture orth("qjl", Side::kKey, 64);
  orth.encode(ramp_rows(64));
  EXPECT_EQ(sketch_hex(orth, 64), "15f65d41d2bc821e");
  EXPECT_EQ(metadata_of_first_token(orth, 0, 0), 4.671875F);
}

TEST(GoldenBytes, PolarRamp) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    CodecFixture fixture("polar", side, 64);
    fixture.encode(ramp_rows(64));
    EXPECT_EQ(codes_of_first_token(fixture, 0, 8), (std::vector<int>{7, 9, 12, 5, 14, 0, 3, 13}));
    EXPECT_EQ(codes_of_first_token(fixture, 32, 8), (std::vector<int>{2, 0, 2, 3, 2, 3, 2, 2}));
    EXPECT_EQ(codes_of_first_token(fixture, 48, 8), (std::vector<int>{0, 1, 0, 2, 2, 0, 1, 0}));
    EXPECT_EQ(codes_of_first_token(fixture, 56, 4), (std::vector<int>{1, 1, 2, 1}));
    const float radii[] = {2.347656F, 2.591797F, 1.59375F, 2.658203F};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(metadata_of_first_token(fixture, 0, i), radii[i], 5e-7F);
    }
  }
}

TEST(GoldenBytes, GgmlBlocksOfARamp) {
  // (i - 16) / 4: scale 4/127 and 0.5, computed by hand.
  std::vector<float> rows(std::size_t{32} * 32, 0.0F);
  for (std::size_t i = 0; i < 32; ++i) rows[i] = (static_cast<float>(i) - 16.0F) / 4.0F;
  CodecFixture eight("q8_0", Side::kValue, 32);
  eight.encode(rows);
  EXPECT_EQ(eight.hex(0, 8), "082881899199a1a9");
  CodecFixture four("q4_0", Side::kValue, 32);
  four.encode(rows);
  EXPECT_EQ(four.hex(0, 6), "0038809191a2");
}

TEST(GoldenBytes, GgmlRoundsHalvesAwayFromZero) {
  std::vector<float> rows(std::size_t{32} * 32, 0.0F);
  rows[0] = 127.0F;  // scale 1
  rows[1] = 0.5F;
  rows[2] = -0.5F;
  rows[3] = 2.5F;
  CodecFixture fixture("q8_0", Side::kValue, 32);
  fixture.encode(rows);
  EXPECT_EQ(fixture.hex(0, 7), "003c7f01ff0300");
}

// What a plane holds where the layout says so, told from the codes one by one.
TEST(GoldenBytes, KeysAreChannelMajorAndValuesTokenMajor) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    CodecFixture fixture("int2", side, 64);
    const std::vector<float> rows = testing::gaussian(std::size_t{32} * 64, 9);
    fixture.encode(rows);
    const std::byte* plane = fixture.block() + fixture.layout().planes[2].array.offset;
    for (std::size_t t = 0; t < 32; ++t) {
      for (std::size_t first = 0; first < 64; first += 32) {
        const float* x = rows.data() + t * 64 + first;
        const std::size_t least = first + static_cast<std::size_t>(std::min_element(x, x + 32) - x);
        const std::size_t most = first + static_cast<std::size_t>(std::max_element(x, x + 32) - x);
        const auto code = [&](std::size_t channel) {
          const std::size_t n = side == Side::kKey ? channel * 32 + t : t * 64 + channel;
          return std::to_integer<unsigned>(plane[n / 4]) >> n % 4 * 2 & 3U;
        };
        EXPECT_EQ(code(least), 0U);
        EXPECT_EQ(code(most), 3U);
      }
    }
  }
}

}  // namespace
}  // namespace kvpool
