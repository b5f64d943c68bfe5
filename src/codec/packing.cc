#include "kvpool/codec/packing.h"

namespace kvpool {
namespace {

// Packs bits [shift, shift + width) of each code.
void pack_bits(const std::uint8_t* codes, std::size_t n, std::size_t shift, std::size_t width,
               std::byte* bytes) {
  const std::size_t per_byte = 8 / width;
  const unsigned mask = (1U << width) - 1U;
  for (std::size_t i = 0; i < n / per_byte; ++i) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < per_byte; ++j) {
      byte |= (static_cast<unsigned>(codes[i * per_byte + j]) >> shift & mask) << j * width;
    }
    bytes[i] = static_cast<std::byte>(byte);
  }
}

}  // namespace

void pack_plane(const std::uint8_t* values, std::size_t n, std::size_t width, std::byte* bytes) {
  pack_bits(values, n, 0, width, bytes);
}

void unpack_plane(const std::byte* bytes, std::size_t n, std::size_t width, std::uint8_t* values) {
  const std::size_t per_byte = 8 / width;
  const unsigned mask = (1U << width) - 1U;
  for (std::size_t i = 0; i < n; ++i) {
    const auto byte = std::to_integer<unsigned>(bytes[i / per_byte]);
    values[i] = static_cast<std::uint8_t>(byte >> i % per_byte * width & mask);
  }
}

void pack_run(const std::uint8_t* codes, std::size_t n, std::size_t bits, std::byte* bytes) {
  for (const std::size_t width : kPlaneWidths) {
    if (!has_plane(bits, width)) continue;
    pack_bits(codes, n, plane_shift(bits, width), width, bytes);
    bytes += n * width / 8;
  }
}

void unpack_run(const std::byte* bytes, std::size_t n, std::size_t bits, std::uint8_t* codes) {
  for (std::size_t i = 0; i < n; ++i) codes[i] = 0;
  for (const std::size_t width : kPlaneWidths) {
    if (!has_plane(bits, width)) continue;
    const std::size_t per_byte = 8 / width;
    const std::size_t shift = plane_shift(bits, width);
    const unsigned mask = (1U << width) - 1U;
    for (std::size_t i = 0; i < n; ++i) {
      const auto byte = std::to_integer<unsigned>(bytes[i / per_byte]);
      const unsigned value = byte >> i % per_byte * width & mask;
      codes[i] = static_cast<std::uint8_t>(codes[i] | value << shift);
    }
    bytes += n * width / 8;
  }
}

}  // namespace kvpool
