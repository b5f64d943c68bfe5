// Packing: codes of 1 to 8 bits as bit planes that no code straddles a byte of.
//
// A code of b bits is cut into planes whose widths are the powers of two in b, widest and lowest
// bits first: 3 = 2+1, 5 = 4+1, 6 = 4+2, 7 = 4+2+1. In a plane of width w, code n lies in bits
// [w*n, w*n + w) of a little-endian bit string. So a run of N codes costs exactly N*b/8 bytes for
// N a multiple of 16, and a kernel unpacks any b with one shift, one mask and one OR a plane;
// a single bit string of 3-bit codes would need shuffles.
//
//   b = 3, codes 0…7 0…7:   plane of 2: e4 e4 e4 e4   plane of 1: f0 f0
//
// Non-owning; no state; any thread; O(n).
//
//   pack_run(codes, 16, 3, bytes);   // codes: [16] below 8; bytes: [run_bytes(16, 3)] = [6]
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvpool {

inline constexpr std::size_t kPlaneWidths[] = {8, 4, 2, 1};

constexpr bool has_plane(std::size_t bits, std::size_t width) { return (bits & width) != 0; }

// How many bits of a code of `bits` lie below those of its plane of `width`.
constexpr std::size_t plane_shift(std::size_t bits, std::size_t width) {
  return bits & ~(2 * width - 1);
}

// values: [n], each below 2^width; bytes: [n * width / 8]. n * width must be a multiple of 8.
void pack_plane(const std::uint8_t* values, std::size_t n, std::size_t width, std::byte* bytes);
void unpack_plane(const std::byte* bytes, std::size_t n, std::size_t width, std::uint8_t* values);

// All planes of one run, one after the other. n must be a multiple of 16.
constexpr std::size_t run_bytes(std::size_t n, std::size_t bits) { return n * bits / 8; }
void pack_run(const std::uint8_t* codes, std::size_t n, std::size_t bits, std::byte* bytes);
void unpack_run(const std::byte* bytes, std::size_t n, std::size_t bits, std::uint8_t* codes);

}  // namespace kvpool
