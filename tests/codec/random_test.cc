#include "kvpool/codec/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "codec/portable_math.h"

namespace kvpool {
namespace {

TEST(SplitMix64, GivesTheReferenceWords) {
  SplitMix64 words(42);
  EXPECT_EQ(words.next(), 0xBDD732262FEB6E95U);
  EXPECT_EQ(words.next(), 0x28EFE333B266F103U);
  EXPECT_EQ(words.next(), 0x47526757130F9F52U);
}

TEST(Stream, GivesTheReferenceWordsOfItsTags) {
  EXPECT_EQ(stream(42, StreamTag::kFirstSigns).next(), 0xFB8FE91477C0FE78U);
  EXPECT_EQ(stream(42, StreamTag::kSecondSigns).next(), 0x9FA87ABE3488A5A0U);
}

TEST(Signs, TakeAWordsBitsFromTheLowestUpAndANewWordAfterSixtyFour) {
  float signs[80];
  fill_signs(stream(42, StreamTag::kFirstSigns), 80, signs);
  SplitMix64 words = stream(42, StreamTag::kFirstSigns);
  std::uint64_t word = words.next();
  for (std::size_t i = 0; i < 80; ++i) {
    if (i == 64) word = words.next();
    EXPECT_EQ(signs[i], (word >> i % 64 & 1U) == 1U ? -1.0F : 1.0F) << i;
  }
}

TEST(GaussianStream, GivesTheReferenceNumbers) {
  GaussianStream numbers(stream(42, StreamTag::kSketch));
  for (const float expected : {0.7299533F, 0.1366924F, -2.009577F, -1.301384F}) {
    EXPECT_NEAR(numbers.next(), expected, 5e-7F);
  }
}

TEST(GaussianStream, HasMeanZeroAndVarianceOne) {
  GaussianStream numbers(SplitMix64(7));
  constexpr int kCount = 20000;
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < kCount; ++i) {
    const auto x = static_cast<double>(numbers.next());
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 4.0 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 4.0 * std::sqrt(2.0 / kCount));
}

TEST(PortableMath, LogarithmIsWithinTwoUlp) {
  SplitMix64 words(3);
  for (int i = 0; i < 20000; ++i) {
    const double x = static_cast<double>((words.next() >> 11) + 1U) * 0x1p-53;
    for (const double argument : {x, 1.0 - x / 1024.0, x * 0x1p-40}) {
      if (argument <= 0.0) continue;
      const double expected = std::log(argument);
      EXPECT_NEAR(internal::portable_log(argument), expected, 4.5e-16 * std::fabs(expected));
    }
  }
  EXPECT_EQ(internal::portable_log(1.0), 0.0);
}

TEST(PortableMath, CosineAndSineAreWithinAnUlpOfOne) {
  SplitMix64 words(4);
  for (int i = 0; i < 20000; ++i) {
    const double turns = static_cast<double>(words.next() >> 11) * 0x1p-53;
    const internal::CosineSine result = internal::portable_cosine_sine(turns);
    // 2 pi * turns rounds, so the C library answers for an angle up to 4.5e-16 away.
    EXPECT_NEAR(result.cosine, std::cos(2.0 * std::numbers::pi * turns), 1.2e-15);
    EXPECT_NEAR(result.sine, std::sin(2.0 * std::numbers::pi * turns), 1.2e-15);
  }
}

TEST(PortableMath, QuarterTurnsAreExact) {
  const double expected[4][2] = {{1.0, 0.0}, {0.0, 1.0}, {-1.0, 0.0}, {0.0, -1.0}};
  for (int quarter = 0; quarter < 4; ++quarter) {
    const internal::CosineSine result = internal::portable_cosine_sine(quarter / 4.0);
    EXPECT_EQ(result.cosine, expected[quarter][0]);
    EXPECT_EQ(result.sine, expected[quarter][1]);
  }
}

}  // namespace
}  // namespace kvpool
