#include "kvpool/codec/value_check.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "kvpool/base/float16.h"
#include "kvpool/codec/reduction.h"

namespace kvpool {

float largest_value(const FormatSpec& spec) {
  if (spec.method == Method::kFp32) return std::numeric_limits<float>::max();
  if (spec.method == Method::kBf16) return kLargestBfloat16;
  return kLargestHalf;
}

bool stores_norms(const FormatSpec& spec) {
  switch (spec.method) {
    case Method::kTurboquantMse:
    case Method::kTurboquantProd:
    case Method::kQjl:
    case Method::kPolar:
    case Method::kSpectral:
    case Method::kSpectralWf:
      return true;
    default:
      return false;
  }
}

std::optional<UnrepresentableValue> find_unrepresentable(const FormatSpec& spec, const float* rows,
                                                         std::size_t n_rows, std::size_t head_dim) {
  using Kind = UnrepresentableValue::Kind;
  const float largest = largest_value(spec);
  for (std::size_t row = 0; row < n_rows; ++row) {
    const float* x = rows + row * head_dim;
    for (std::size_t i = 0; i < head_dim; ++i) {
      if (!std::isfinite(x[i])) return UnrepresentableValue{Kind::kNotFinite, row, i, x[i]};
      if (std::fabs(x[i]) > largest) return UnrepresentableValue{Kind::kTooLarge, row, i, x[i]};
    }
    if (!stores_norms(spec)) continue;
    const float norm = std::sqrt(lane_sum(0, head_dim, [&](std::size_t i) { return x[i] * x[i]; }));
    if (norm > kLargestHalf) return UnrepresentableValue{Kind::kNormTooLarge, row, 0, norm};
  }
  return std::nullopt;
}

void require_representable(const FormatSpec& spec, const float* rows, std::size_t n_rows,
                           std::size_t head_dim, std::string_view caller) {
  const auto found = find_unrepresentable(spec, rows, n_rows, head_dim);
  if (!found.has_value()) return;
  std::ostringstream text;
  text << '[' << caller << "] " << to_string(spec) << " can't hold ";
  if (found->kind == UnrepresentableValue::Kind::kNormTooLarge) {
    text << "a vector of norm " << found->value << " (row " << found->row
         << "): norms must be at most " << kLargestHalf;
  } else {
    text << found->value << " (row " << found->row << ", channel " << found->channel
         << "): values must be finite and within +-" << largest_value(spec);
  }
  throw std::invalid_argument(text.str());
}

std::size_t saturate(const FormatSpec& spec, float* rows, std::size_t n_rows,
                     std::size_t head_dim) {
  const float largest = largest_value(spec);
  std::size_t n_changed = 0;
  for (std::size_t i = 0; i < n_rows * head_dim; ++i) {
    float& value = rows[i];
    if (std::isnan(value)) {
      value = 0.0F;
    } else if (std::fabs(value) > largest) {
      value = std::copysign(largest, value);
    } else {
      continue;
    }
    ++n_changed;
  }
  return n_changed;
}

}  // namespace kvpool
