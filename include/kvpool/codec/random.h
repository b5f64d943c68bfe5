// The random numbers that codecs share: the same on every machine for the same seed.
//
// SplitMix64 gives 64-bit words. stream(seed, tag) is an independent generator for each use of one
// seed. Signs take a word's bits from the lowest up; Gaussians take two words a pair (Box-Muller).
// Their logarithm, sine and cosine are computed here from additions, multiplications, divisions and
// square roots alone: those of the C library differ between systems in the last bit.
//
// Values; a generator belongs to one thread at a time. O(1) a number.
//
//   GaussianStream gaussians(stream(42, StreamTag::kSketch));
//   const float first = gaussians.next();   // 0.7299533
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvpool {

class SplitMix64 {
 public:
  explicit constexpr SplitMix64(std::uint64_t state) : state_(state) {}

  constexpr std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
  }

 private:
  std::uint64_t state_;
};

// What a stream of one seed is for.
enum class StreamTag : std::uint64_t {
  kFirstSigns = 1,   // of a rotation
  kSecondSigns = 2,  // of a rotation
  kSketch = 3,       // a Gaussian sketch's entries, row by row
  kHaar = 4,         // a dense rotation, which tests compare with
};

constexpr SplitMix64 stream(std::uint64_t seed, StreamTag tag) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(tag) * 0xD1342543DE82EF95U;
  return SplitMix64(SplitMix64(seed ^ mixed).next());
}

// signs: [n], each +1 or -1. Bit 1 is -1; a new word begins every 64 entries.
void fill_signs(SplitMix64 words, std::size_t n, float* signs);

// Independent N(0, 1), computed in double and rounded to float.
class GaussianStream {
 public:
  explicit GaussianStream(SplitMix64 words) : words_(words) {}

  float next();

 private:
  SplitMix64 words_;
  double waiting_ = 0.0;  // the second of a pair
  bool has_waiting_ = false;
};

}  // namespace kvpool
