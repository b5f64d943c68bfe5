#include "kvpool/codec/packing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kvpool/codec/random.h"

namespace kvpool {
namespace {

template <std::size_t kSize>
std::vector<std::byte> bytes(const unsigned (&values)[kSize]) {
  std::vector<std::byte> result;
  for (const unsigned value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

std::vector<std::byte> packed(std::size_t bits, unsigned factor, unsigned term) {
  std::vector<std::uint8_t> codes;
  for (unsigned i = 0; i < 16; ++i) {
    codes.push_back(static_cast<std::uint8_t>((factor * i + term) & ((1U << bits) - 1U)));
  }
  std::vector<std::byte> result(run_bytes(16, bits));
  pack_run(codes.data(), 16, bits, result.data());
  return result;
}

TEST(Packing, GivesTheReferenceBytes) {
  EXPECT_EQ(packed(3, 1, 0), bytes({0xE4, 0xE4, 0xE4, 0xE4, 0xF0, 0xF0}));
  EXPECT_EQ(packed(5, 2, 1), bytes({0x31, 0x75, 0xB9, 0xFD, 0x31, 0x75, 0xB9, 0xFD, 0x00, 0xFF}));
  EXPECT_EQ(packed(6, 4, 1),
            bytes({0x51, 0xD9, 0x51, 0xD9, 0x51, 0xD9, 0x51, 0xD9, 0x00, 0x55, 0xAA, 0xFF}));
}

TEST(Packing, CostsExactlyItsBitsAndComesBack) {
  SplitMix64 words(1);
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    for (const std::size_t n : {std::size_t{16}, std::size_t{48}, std::size_t{256}}) {
      std::vector<std::uint8_t> codes(n);
      for (std::uint8_t& code : codes)
        code = static_cast<std::uint8_t>(words.next() >> (64 - bits));
      std::vector<std::byte> packed_bytes(n * bits / 8 + 1, std::byte{0x5A});
      pack_run(codes.data(), n, bits, packed_bytes.data());
      EXPECT_EQ(packed_bytes.back(), std::byte{0x5A}) << "wrote past its end at " << bits;
      std::vector<std::uint8_t> back(n);
      unpack_run(packed_bytes.data(), n, bits, back.data());
      EXPECT_EQ(back, codes) << bits << " bits, " << n;
    }
  }
}

TEST(Packing, PlanesAreThePowersOfTwoInTheBits) {
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    std::size_t sum = 0;
    for (const std::size_t width : kPlaneWidths) {
      if (!has_plane(bits, width)) continue;
      EXPECT_EQ(plane_shift(bits, width), sum) << "planes fill the code from its lowest bit";
      sum += width;
    }
    EXPECT_EQ(sum, bits);
  }
}

TEST(Packing, OnePlaneComesBack) {
  const std::uint8_t values[] = {1, 2, 3, 0, 3, 2, 1, 0};
  std::byte plane[2];
  pack_plane(values, 8, 2, plane);
  EXPECT_EQ(plane[0], std::byte{0b00111001});
  std::uint8_t back[8];
  unpack_plane(plane, 8, 2, back);
  EXPECT_EQ(std::memcmp(back, values, 8), 0);
}

}  // namespace
}  // namespace kvpool
