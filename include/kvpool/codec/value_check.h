// Which values a format can hold, asked once, before anything is stored.
//
// Metadata are halves: a value, a group's extreme or a vector's norm above 65504 has none. fp32 and
// bf16 hold what they can themselves. A NaN or an infinity is never held. There are two answers to
// such input, and each caller takes one:
//
//   refuse    require_representable()   the single-head caches: an error, nothing changed
//   saturate  saturate()                the paged cache, which can't raise inside a graph: values
//   go
//                                       to +-limit, NaN to 0, and how many is returned
//
// saturate() leaves norms alone: a vector of representable values whose norm is too large is stored
// with the largest gain, which encode() counts.
//
// No state; any thread; O(n_rows * head_dim).
//
//   require_representable(spec, k, 1, 128, "KVCache::append_key");   // k: [128]
//   n_changed += saturate(spec, rows, n_rows, 128);                  // rows: [n_rows][128]
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "kvpool/codec/format_spec.h"

namespace kvpool {

struct UnrepresentableValue {
  enum class Kind { kNotFinite, kTooLarge, kNormTooLarge };
  Kind kind;
  std::size_t row;
  std::size_t channel;  // of a norm: 0
  float value;          // of a norm: the norm
};

// The largest magnitude of a value.
float largest_value(const FormatSpec& spec);

// Whether the format stores a vector's norm or a like gain.
bool stores_norms(const FormatSpec& spec);

// The first one in rows, [n_rows][head_dim].
std::optional<UnrepresentableValue> find_unrepresentable(const FormatSpec& spec, const float* rows,
                                                         std::size_t n_rows, std::size_t head_dim);

// Throws std::invalid_argument, opened by [caller], that shows the value and what is allowed.
void require_representable(const FormatSpec& spec, const float* rows, std::size_t n_rows,
                           std::size_t head_dim, std::string_view caller);

// Makes each value representable; returns how many it changed. rows: [n_rows][head_dim].
std::size_t saturate(const FormatSpec& spec, float* rows, std::size_t n_rows, std::size_t head_dim);

}  // namespace kvpool
