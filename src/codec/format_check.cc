// Which blocks a format can hold.
#include <stdexcept>
#include <string>

#include "format_table.h"
#include "kvpool/codec/format_spec.h"
#include "kvpool/codec/limits.h"

namespace kvpool {
namespace {

[[noreturn]] void refuse(const FormatSpec& spec, const std::string& needs, std::size_t got) {
  throw std::invalid_argument("[check_format] " + to_string(spec) + " needs " + needs + ", got " +
                              std::to_string(got));
}

void check_multiple(const FormatSpec& spec, const char* what, std::size_t value, std::size_t unit,
                    std::size_t most) {
  if (value == 0 || value % unit != 0 || value > most) {
    std::string needs = std::string("a ") + what + " that is a positive multiple of ";
    needs += std::to_string(unit);
    if (most != static_cast<std::size_t>(-1)) needs += " up to " + std::to_string(most);
    refuse(spec, needs, value);
  }
}

void check_side(const FormatSpec& spec, Side side) {
  if (side == Side::kKey) return;
  if (internal::format_row(spec.method).only_key) {
    throw std::invalid_argument("[check_format] " + to_string(spec) +
                                " estimates dot products and can hold keys only, got values");
  }
  if (spec.center) {
    throw std::invalid_argument("[check_format] " + to_string(spec) +
                                ": center=1 is for keys only, got values");
  }
}

void check_sketch(const FormatSpec& spec, std::size_t head_dim) {
  const bool any_rows = spec.method == Method::kQjl && spec.sketch == SketchKind::kGaussian;
  check_multiple(spec, "m (rows of the sketch)", sketch_rows(spec, head_dim),
                 any_rows ? 16 : head_dim, kMaxSketchRows);
}

}  // namespace

std::size_t sketch_rows(const FormatSpec& spec, std::size_t head_dim) {
  return spec.sketch_rows == 0 ? head_dim : spec.sketch_rows;
}

void check_format(const FormatSpec& spec, Side side, const BlockShape& shape) {
  check_side(spec, side);
  std::size_t unit = 16;
  if (spec.method == Method::kGgmlQ8 || spec.method == Method::kGgmlQ4) unit = 32;
  if (spec.method == Method::kMlxAffine) unit = spec.group;
  check_multiple(spec, "head_dim", shape.head_dim, unit, kMaxHeadDim);
  check_multiple(spec, "block_size", shape.block_size, kTokenRun, static_cast<std::size_t>(-1));
  if (spec.method == Method::kTurboquantProd || spec.method == Method::kQjl) {
    check_sketch(spec, shape.head_dim);
  }
  if (spec.method == Method::kSpectral && spec.signal_channels >= shape.head_dim) {
    refuse(spec, "fewer signal channels than head_dim " + std::to_string(shape.head_dim),
           spec.signal_channels);
  }
  if (spec.method == Method::kSpectral && spec.noise_bits > spec.bits) {
    refuse(spec, "at most " + std::to_string(spec.bits) + " noise bits", spec.noise_bits);
  }
}

}  // namespace kvpool
