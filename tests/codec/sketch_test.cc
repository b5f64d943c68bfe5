#include "kvpool/codec/sketch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "codec_fixture.h"

namespace kvpool {
namespace {

using testing::dot;
using testing::gaussian;

constexpr SketchKind kKinds[] = {SketchKind::kOrthogonal, SketchKind::kGaussian};

TEST(Sketch, BackProjectionIsTheTranspose) {
  for (const SketchKind kind : kKinds) {
    const Sketch sketch({.kind = kind, .head_dim = 80, .n_rows = 160, .seed = 5});
    const std::vector<float> x = gaussian(80, 1);
    const std::vector<float> w = gaussian(160, 2);
    std::vector<float> projected(160);
    std::vector<float> back(80);
    sketch.project(x.data(), projected.data());
    sketch.back_project(w.data(), back.data());
    const double left = dot(projected.data(), w.data(), 160);
    const double scale =
        std::sqrt(dot(projected.data(), projected.data(), 160) * dot(w.data(), w.data(), 160));
    EXPECT_NEAR(dot(x.data(), back.data(), 80), left, 1e-6 * scale);
  }
}

TEST(Sketch, OrthogonalKappaIsTheClosedForm) {
  const struct {
    std::size_t d;
    double kappa;
  } cases[] = {{64, 1.248428}, {80, 1.249404}, {96, 1.250055}, {128, 1.250869}, {256, 1.252091}};
  for (const auto& expected : cases) {
    const Sketch sketch({.head_dim = expected.d, .n_rows = 2 * expected.d});
    const double kappa =
        static_cast<double>(sketch.factor()) * 2.0 * static_cast<double>(expected.d);
    EXPECT_NEAR(kappa, expected.kappa, 6e-7);
  }
  const Sketch gauss({.kind = SketchKind::kGaussian, .head_dim = 64, .n_rows = 16});
  EXPECT_NEAR(static_cast<double>(gauss.factor()) * 16.0, 1.253314, 6e-7);
}

TEST(Sketch, OrthogonalRowsHaveTheGaussianOnesMeanLength) {
  const Sketch sketch({.head_dim = 64, .n_rows = 128});
  std::vector<float> x(64, 0.0F);
  x[7] = 1.0F;
  std::vector<float> column(128);
  sketch.project(x.data(), column.data());
  EXPECT_NEAR(dot(column.data(), column.data(), 128), 128.0, 1e-3);
}

TEST(Sketch, RefusesImpossibleSizes) {
  EXPECT_THROW(Sketch({.head_dim = 128, .n_rows = 64}), std::invalid_argument);
  EXPECT_THROW(Sketch({.head_dim = 128, .n_rows = 0}), std::invalid_argument);
  EXPECT_THROW(Sketch({.head_dim = 72, .n_rows = 72}), std::invalid_argument);
  EXPECT_THROW(Sketch({.kind = SketchKind::kGaussian, .head_dim = 128, .n_rows = 40}),
               std::invalid_argument);
  EXPECT_NO_THROW(Sketch({.kind = SketchKind::kGaussian, .head_dim = 128, .n_rows = 48}));
}

}  // namespace
}  // namespace kvpool
