// The bytes of every format, as digests: equal under every compiler, optimisation and machine.
//
// A change of a digest is a change of a format: blocks on disk or elsewhere no longer decode to
// what they were. It must be wanted, and then has a new name or option.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "codec_fixture.h"
#include "kvpool/codec/spectral_basis.h"

namespace kvpool {
namespace {

using testing::CodecFixture;
using testing::gaussian;
using testing::kHeadDims;

// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const std::byte* bytes, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      value_ = (value_ ^ std::to_integer<std::uint64_t>(bytes[i])) * 0x100000001B3U;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

// Gaussian rows of many magnitudes, a zero row, a constant row, a one-hot row.
std::vector<float> varied_rows(std::size_t n, std::size_t d, std::uint64_t seed) {
  std::vector<float> rows = gaussian(n * d, seed);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::ldexp(rows[i], static_cast<int>(i / d % 13) - 6);
  }
  std::fill_n(rows.begin(), d, 0.0F);
  std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>(d), d, 1.25F);
  std::fill_n(rows.begin() + static_cast<std::ptrdiff_t>(2 * d), d, 0.0F);
  rows[2 * d + 3] = -3.0F;
  return rows;
}

bool possible(const FormatSpec& spec, Side side, const BlockShape& shape) {
  try {
    check_format(spec, side, shape);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void add_blocks(const FormatSpec& spec, std::size_t d, const SpectralBasis& basis, Digest* digest) {
  const std::vector<float> mean = gaussian(d, 21);
  for (const Side side : {Side::kKey, Side::kValue}) {
    for (const std::size_t block_size : {std::size_t{16}, std::size_t{32}}) {
      if (!possible(spec, side, {d, block_size})) continue;
      CodecFixture fixture(CodecOptions{.format = spec,
                                        .side = side,
                                        .shape = {d, block_size},
                                        .mean = mean.data(),
                                        .spectral = basis.view()});
      fixture.encode(varied_rows(block_size, d, d + block_size));
      digest->add(fixture.block(), fixture.layout().size_bytes);
    }
  }
}

std::uint64_t digest_of(const char* format) {
  const FormatSpec spec = parse_format(format);
  Digest digest;
  if (spec.method == Method::kSpectral || spec.method == Method::kSpectralWf) {
    for (const std::size_t d : {std::size_t{48}, std::size_t{64}}) {
      const std::vector<float> vectors = varied_rows(512, d, 31);
      add_blocks(spec, d, calibrate_spectral(vectors.data(), 512, d), &digest);
    }
    return digest.value();
  }
  for (const std::size_t d : kHeadDims) add_blocks(spec, d, SpectralBasis{}, &digest);
  return digest.value();
}

struct Golden {
  const char* format;
  std::uint64_t digest;
};

constexpr Golden kGoldens[] = {
#include "golden_digests.inc"
};

TEST(GoldenDigest, EveryFormatsBytesAreThoseCommitted) {
  for (const Golden& golden : kGoldens) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%016llXU",
                  static_cast<unsigned long long>(digest_of(golden.format)));
    char committed[32];
    std::snprintf(committed, sizeof committed, "0x%016llXU",
                  static_cast<unsigned long long>(golden.digest));
    EXPECT_STREQ(text, committed) << golden.format;
  }
}

TEST(GoldenDigest, OptionsThatChangeBytesChangeTheDigest) {
  std::vector<std::uint64_t> digests;
  for (const Golden& golden : kGoldens) digests.push_back(golden.digest);
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::adjacent_find(digests.begin(), digests.end()), digests.end());
}

}  // namespace
}  // namespace kvpool
