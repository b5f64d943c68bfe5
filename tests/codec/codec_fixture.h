// What the codec's tests share: seeded data, a codec with its block, vectors in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvpool/codec/block_codec.h"
#include "kvpool/codec/random.h"

namespace kvpool::testing {

inline constexpr std::size_t kHeadDims[] = {64, 80, 96, 128, 256};

// [n] independent N(0, 1).
inline std::vector<float> gaussian(std::size_t n, std::uint64_t seed) {
  GaussianStream numbers(SplitMix64{seed});
  std::vector<float> values(n);
  for (float& value : values) value = numbers.next();
  return values;
}

// [n][d], each of norm 1.
inline std::vector<float> unit_vectors(std::size_t n, std::size_t d, std::uint64_t seed) {
  std::vector<float> rows = gaussian(n * d, seed);
  for (std::size_t row = 0; row < n; ++row) {
    double squares = 0.0;
    for (std::size_t i = 0; i < d; ++i) squares += std::pow(rows[row * d + i], 2);
    const double norm = std::sqrt(squares);
    for (std::size_t i = 0; i < d; ++i) {
      rows[row * d + i] = static_cast<float>(rows[row * d + i] / norm);
    }
  }
  return rows;
}

// (i + 1) / d.
inline std::vector<float> ramp(std::size_t d) {
  std::vector<float> row(d);
  for (std::size_t i = 0; i < d; ++i) row[i] = static_cast<float>(i + 1) / static_cast<float>(d);
  return row;
}

inline double dot(const float* a, const float* b, std::size_t n) {
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Sum of squared differences over the sum of squares.
inline double relative_squared_error(const std::vector<float>& exact,
                                     const std::vector<float>& approximate) {
  double error = 0.0;
  double energy = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto x = static_cast<double>(exact[i]);
    error += std::pow(x - static_cast<double>(approximate[i]), 2);
    energy += x * x;
  }
  return error / energy;
}

// One codec, and one block at the alignment that blocks have.
class CodecFixture {
 public:
  explicit CodecFixture(const CodecOptions& options)
      : codec_(make_codec(options)),
        storage_(codec_->layout().size_bytes + kArrayAlignment),
        block_(storage_.data()) {
    while (reinterpret_cast<std::uintptr_t>(block_) % kArrayAlignment != 0) ++block_;
  }
  CodecFixture(std::string_view format, Side side, std::size_t head_dim,
               std::size_t block_size = 32)
      : CodecFixture(CodecOptions{
            .format = parse_format(format), .side = side, .shape = {head_dim, block_size}}) {}

  const BlockCodec& codec() const { return *codec_; }
  const BlockLayout& layout() const { return codec_->layout(); }
  std::byte* block() { return block_; }

  std::size_t encode(const std::vector<float>& rows) { return codec_->encode(rows.data(), block_); }

  std::vector<float> decode() const {
    std::vector<float> rows(layout().shape.head_dim * layout().shape.block_size);
    codec_->decode(block_, rows.data());
    return rows;
  }

  // Rows through blocks and back; [n][head_dim], n a multiple of block_size.
  std::vector<float> round_trip(const std::vector<float>& rows) {
    std::vector<float> result(rows.size());
    const std::size_t step = layout().shape.head_dim * layout().shape.block_size;
    for (std::size_t first = 0; first < rows.size(); first += step) {
      codec_->encode(rows.data() + first, block_);
      codec_->decode(block_, result.data() + first);
    }
    return result;
  }

  // Bytes [offset, offset + n) in hexadecimal.
  std::string hex(std::size_t offset, std::size_t n) const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < n; ++i) {
      const auto byte = std::to_integer<unsigned>(block_[offset + i]);
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15U];
    }
    return text;
  }

 private:
  std::unique_ptr<BlockCodec> codec_;
  std::vector<std::byte> storage_;
  std::byte* block_;
};

}  // namespace kvpool::testing
