#include "kvpool/codec/codebooks.h"

#include <algorithm>
#include <array>

#include "codebook_tables.h"

namespace kvpool {
namespace {

// The whole codebook, in float, from the positive half of its centroids.
template <std::size_t kHalf>
struct SymmetricTable {
  std::array<float, 2 * kHalf> centroids{};
  std::array<float, 2 * kHalf - 1> thresholds{};

  constexpr explicit SymmetricTable(const double (&positive)[kHalf]) {
    for (std::size_t i = 0; i < kHalf; ++i) {
      centroids[kHalf + i] = static_cast<float>(positive[i]);
      centroids[kHalf - 1 - i] = static_cast<float>(-positive[i]);
    }
    thresholds[kHalf - 1] = 0.0F;
    for (std::size_t i = 1; i < kHalf; ++i) {
      const double middle = (positive[i - 1] + positive[i]) / 2.0;
      thresholds[kHalf - 1 + i] = static_cast<float>(middle);
      thresholds[kHalf - 1 - i] = static_cast<float>(-middle);
    }
  }
};

constexpr SymmetricTable kTable1(internal::kNormal1);
constexpr SymmetricTable kTable2(internal::kNormal2);
constexpr SymmetricTable kTable3(internal::kNormal3);
constexpr SymmetricTable kTable4(internal::kNormal4);
constexpr SymmetricTable kTable5(internal::kNormal5);
constexpr SymmetricTable kTable6(internal::kNormal6);
constexpr SymmetricTable kTable7(internal::kNormal7);
constexpr SymmetricTable kTable8(internal::kNormal8);

constexpr ScalarCodebook kNormalCodebooks[] = {
    {1, kTable1.centroids.data(), kTable1.thresholds.data()},
    {2, kTable2.centroids.data(), kTable2.thresholds.data()},
    {3, kTable3.centroids.data(), kTable3.thresholds.data()},
    {4, kTable4.centroids.data(), kTable4.thresholds.data()},
    {5, kTable5.centroids.data(), kTable5.thresholds.data()},
    {6, kTable6.centroids.data(), kTable6.thresholds.data()},
    {7, kTable7.centroids.data(), kTable7.thresholds.data()},
    {8, kTable8.centroids.data(), kTable8.thresholds.data()},
};

template <std::size_t kSize>
constexpr std::array<float, kSize> floats(const double (&values)[kSize]) {
  std::array<float, kSize> result{};
  for (std::size_t i = 0; i < kSize; ++i) result[i] = static_cast<float>(values[i]);
  return result;
}

// The three tables of one angle codebook.
template <std::size_t kTangents, std::size_t kCodes>
struct AngleTable {
  std::array<float, kTangents> tangents;
  std::array<float, kCodes> cosines;
  std::array<float, kCodes> sines;

  constexpr AngleTable(const double (&tans)[kTangents], const double (&coss)[kCodes],
                       const double (&sins)[kCodes])
      : tangents(floats(tans)), cosines(floats(coss)), sines(floats(sins)) {}

  constexpr AngleCodebook view(std::size_t bits) const {
    return {bits, tangents.data(), cosines.data(), sines.data()};
  }
};

constexpr double kNoTangents[] = {0.0};

constexpr AngleTable kAngle11(kNoTangents, internal::kAngle11Cosines, internal::kAngle11Sines);
constexpr AngleTable kAngle12(kNoTangents, internal::kAngle12Cosines, internal::kAngle12Sines);
constexpr AngleTable kAngle13(internal::kAngle13Tangents, internal::kAngle13Cosines,
                              internal::kAngle13Sines);
constexpr AngleTable kAngle14(internal::kAngle14Tangents, internal::kAngle14Cosines,
                              internal::kAngle14Sines);
constexpr AngleTable kAngle21(internal::kAngle21Tangents, internal::kAngle21Cosines,
                              internal::kAngle21Sines);
constexpr AngleTable kAngle22(internal::kAngle22Tangents, internal::kAngle22Cosines,
                              internal::kAngle22Sines);
constexpr AngleTable kAngle23(internal::kAngle23Tangents, internal::kAngle23Cosines,
                              internal::kAngle23Sines);
constexpr AngleTable kAngle24(internal::kAngle24Tangents, internal::kAngle24Cosines,
                              internal::kAngle24Sines);
constexpr AngleTable kAngle31(internal::kAngle31Tangents, internal::kAngle31Cosines,
                              internal::kAngle31Sines);
constexpr AngleTable kAngle32(internal::kAngle32Tangents, internal::kAngle32Cosines,
                              internal::kAngle32Sines);
constexpr AngleTable kAngle33(internal::kAngle33Tangents, internal::kAngle33Cosines,
                              internal::kAngle33Sines);
constexpr AngleTable kAngle34(internal::kAngle34Tangents, internal::kAngle34Cosines,
                              internal::kAngle34Sines);
constexpr AngleTable kAngle41(internal::kAngle41Tangents, internal::kAngle41Cosines,
                              internal::kAngle41Sines);
constexpr AngleTable kAngle42(internal::kAngle42Tangents, internal::kAngle42Cosines,
                              internal::kAngle42Sines);
constexpr AngleTable kAngle43(internal::kAngle43Tangents, internal::kAngle43Cosines,
                              internal::kAngle43Sines);
constexpr AngleTable kAngle44(internal::kAngle44Tangents, internal::kAngle44Cosines,
                              internal::kAngle44Sines);

constexpr AngleCodebook kAngleCodebooks[4][4] = {
    {kAngle11.view(1), kAngle12.view(2), kAngle13.view(3), kAngle14.view(4)},
    {kAngle21.view(1), kAngle22.view(2), kAngle23.view(3), kAngle24.view(4)},
    {kAngle31.view(1), kAngle32.view(2), kAngle33.view(3), kAngle34.view(4)},
    {kAngle41.view(1), kAngle42.view(2), kAngle43.view(3), kAngle44.view(4)},
};

}  // namespace

std::uint8_t ScalarCodebook::nearest(float x) const {
  const float* end = thresholds + (std::size_t{1} << bits) - 1;
  return static_cast<std::uint8_t>(std::lower_bound(thresholds, end, x) - thresholds);
}

ScalarCodebook normal_codebook(std::size_t bits) { return kNormalCodebooks[bits - 1]; }

double normal_distortion(std::size_t bits) { return internal::kNormalDistortion[bits]; }

AngleCodebook angle_codebook(std::size_t level, std::size_t bits) {
  return kAngleCodebooks[level - 1][bits - 1];
}

}  // namespace kvpool
