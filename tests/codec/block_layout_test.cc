#include "kvpool/codec/block_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace kvpool {
namespace {

// Bytes of a token and head on one side, for d = 64, 80, 96, 128, 256; 0: impossible.
struct PayloadRow {
  const char* format;
  Side side;
  double bytes[5];
};

constexpr PayloadRow kPayloads[] = {
    {"fp32", Side::kKey, {256, 320, 384, 512, 1024}},
    {"fp16", Side::kKey, {128, 160, 192, 256, 512}},
    {"bf16", Side::kValue, {128, 160, 192, 256, 512}},
    {"kivi2", Side::kKey, {24, 30, 36, 48, 96}},
    {"kivi2", Side::kValue, {24, 32, 36, 48, 96}},
    {"kivi3", Side::kKey, {32, 40, 48, 64, 128}},
    {"kivi3", Side::kValue, {32, 42, 48, 64, 128}},
    {"kivi4", Side::kKey, {40, 50, 60, 80, 160}},
    {"kivi4", Side::kValue, {40, 52, 60, 80, 160}},
    {"kivi8", Side::kKey, {72, 90, 108, 144, 288}},
    {"kivi8", Side::kValue, {72, 92, 108, 144, 288}},
    {"int8", Side::kValue, {66, 82, 98, 130, 258}},
    {"int4", Side::kKey, {40, 52, 60, 80, 160}},
    {"int2", Side::kValue, {24, 32, 36, 48, 96}},
    {"int1", Side::kKey, {12, 16, 18, 24, 48}},
    {"turboquant_mse2", Side::kKey, {18, 22, 26, 34, 66}},
    {"turboquant_mse3", Side::kValue, {26, 32, 38, 50, 98}},
    {"turboquant_mse4", Side::kKey, {34, 42, 50, 66, 130}},
    {"turboquant_mse8", Side::kValue, {66, 82, 98, 130, 258}},
    {"turboquant_prod1", Side::kKey, {12, 14, 16, 20, 36}},
    {"turboquant_prod2", Side::kKey, {20, 24, 28, 36, 68}},
    {"turboquant_prod3", Side::kKey, {28, 34, 40, 52, 100}},
    {"turboquant_prod4", Side::kKey, {36, 44, 52, 68, 132}},
    {"qjl", Side::kKey, {10, 12, 14, 18, 34}},
    {"polar", Side::kKey, {31, 38.75, 46.5, 62, 124}},
    {"polar", Side::kValue, {31, 38.75, 46.5, 62, 124}},
    {"spectral3", Side::kKey, {28, 34, 40, 52, 100}},
    {"q8_0", Side::kKey, {68, 0, 102, 136, 272}},
    {"q4_0", Side::kValue, {36, 0, 54, 72, 144}},
    {"mlx_affine4", Side::kKey, {36, 0, 0, 72, 144}},
    {"mlx_affine4:g=32", Side::kValue, {40, 0, 60, 80, 160}},
};

constexpr std::size_t kDims[] = {64, 80, 96, 128, 256};

TEST(BlockLayout, PayloadIsTheDocumentedNumberOfBytes) {
  for (const PayloadRow& row : kPayloads) {
    for (std::size_t i = 0; i < 5; ++i) {
      const BlockShape shape{kDims[i], 32};
      if (row.bytes[i] == 0.0) {
        EXPECT_THROW(plan_layout(parse_format(row.format), row.side, shape), std::invalid_argument);
        continue;
      }
      const BlockLayout layout = plan_layout(parse_format(row.format), row.side, shape);
      EXPECT_EQ(static_cast<double>(layout.payload_bytes) / 32.0, row.bytes[i])
          << row.format << ", d = " << kDims[i];
    }
  }
}

TEST(BlockLayout, QjlWithManyRowsStaysBelowItsCap) {
  EXPECT_EQ(plan_layout(parse_format("qjl:m=512"), Side::kKey, {128, 32}).payload_bytes, 66U * 32);
}

TEST(BlockLayout, KiviGroupsOfKeysAreCutToTheBlock) {
  const FormatSpec spec = parse_format("kivi2:g=128");
  // 32 tokens: one group of 32; 48 tokens with g = 32: a group of 32 and one of 16.
  EXPECT_EQ(plan_layout(spec, Side::kKey, {64, 32}).payload_bytes, 64U * 32 * 2 / 8 + 64U * 4);
  EXPECT_EQ(plan_layout(parse_format("kivi2"), Side::kKey, {64, 48}).payload_bytes,
            64U * 48 * 2 / 8 + 2U * 64 * 4);
}

std::vector<BlockArray> arrays_of(const BlockLayout& layout) {
  std::vector<BlockArray> arrays{layout.metadata[0], layout.metadata[1], layout.rows};
  for (const CodePlane& plane : layout.planes) arrays.push_back(plane.array);
  std::erase_if(arrays, [](const BlockArray& array) { return array.bytes == 0; });
  std::sort(arrays.begin(), arrays.end(),
            [](const BlockArray& a, const BlockArray& b) { return a.offset < b.offset; });
  return arrays;
}

TEST(BlockLayout, ArraysAreAlignedApartAndAddUpToThePayload) {
  for (const PayloadRow& row : kPayloads) {
    for (const std::size_t d : kDims) {
      for (const std::size_t block_size : {std::size_t{16}, std::size_t{32}, std::size_t{48}}) {
        const FormatSpec spec = parse_format(row.format);
        BlockLayout layout;
        try {
          layout = plan_layout(spec, row.side, {d, block_size});
        } catch (const std::invalid_argument&) {
          continue;  // told apart in PayloadIsTheDocumentedNumberOfBytes
        }
        std::size_t end = 0;
        std::size_t payload = 0;
        const std::vector<BlockArray> arrays = arrays_of(layout);
        for (const BlockArray& array : arrays) {
          EXPECT_EQ(array.offset % kArrayAlignment, 0U);
          EXPECT_GE(array.offset, end);
          EXPECT_LT(array.offset - end, kArrayAlignment) << "more padding than alignment needs";
          end = array.offset + array.bytes;
          payload += array.bytes;
        }
        EXPECT_EQ(payload, layout.payload_bytes);
        EXPECT_EQ(layout.size_bytes % kArrayAlignment, 0U);
        EXPECT_GE(layout.size_bytes, end);
        EXPECT_LT(layout.padding_bytes(), kArrayAlignment * arrays.size());
      }
    }
  }
}

TEST(BlockLayout, MixedBitsShareOnePlaneOfEachWidth) {
  const BlockLayout layout = plan_layout(parse_format("turboquant_prod4"), Side::kKey, {64, 32});
  // 64 channels of 3 = 2+1 bits, 64 sketch rows of 1.
  ASSERT_EQ(layout.n_segments, 2U);
  EXPECT_EQ(layout.n_code_channels(), 128U);
  EXPECT_EQ(layout.planes[0].n_channels, 0U);
  EXPECT_EQ(layout.planes[1].n_channels, 0U);
  EXPECT_EQ(layout.planes[2].n_channels, 64U);
  EXPECT_EQ(layout.planes[3].n_channels, 128U);
}

TEST(BlockLayout, ChannelBitsDecideTheSpectralPlanes) {
  std::vector<std::uint8_t> bits(64, 2);
  std::fill(bits.begin(), bits.begin() + 10, std::uint8_t{5});
  std::fill(bits.begin() + 60, bits.end(), std::uint8_t{0});
  const BlockLayout layout =
      plan_layout(parse_format("spectral_wf3"), Side::kKey, {64, 32}, bits.data());
  ASSERT_EQ(layout.n_segments, 3U);
  EXPECT_EQ(layout.payload_bytes, 32U * (10 * 5 + 50 * 2) / 8 + 32U * 2);
  bits[3] = 4;
  EXPECT_THROW(plan_layout(parse_format("spectral_wf3"), Side::kKey, {64, 32}, bits.data()),
               std::invalid_argument);
  EXPECT_THROW(plan_layout(parse_format("spectral_wf3"), Side::kKey, {64, 32}),
               std::invalid_argument);
  EXPECT_THROW(plan_layout(parse_format("spectral4:noise=2"), Side::kKey, {64, 32}),
               std::invalid_argument);
  EXPECT_EQ(
      plan_layout(parse_format("spectral4:noise=2,signal=8"), Side::kKey, {64, 32}).payload_bytes,
      32U * (8 * 4 + 56 * 2) / 8 + 32U * 4);
}

}  // namespace
}  // namespace kvpool
