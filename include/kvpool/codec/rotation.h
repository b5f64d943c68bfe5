// Rotation: a random orthogonal map that spreads a vector's energy evenly over its coordinates.
//
// R x = M D2 M D1 x. D1 and D2 are sign diagonals drawn from the seed. M is symmetric and its own
// inverse: with d = m * p, m odd, p a power of two, it takes x as m rows of p, transforms each row
// by Walsh-Hadamard over sqrt(p), and mirrors across the rows (subtracts 2/m of the column sums).
// Hence R^-1 = D1 M D2 M.
//
//          d = 80 = 5 * 16:   ┌ row 0: H16 ┐
//                             │   …        │  then, per column, x - (2/5) * sum over the rows
//                             └ row 4: H16 ┘
//
// One round would leave a one-hot vector with coordinates all of one magnitude, the worst case of a
// scalar codebook; two rounds make it as Gaussian as any other. A dense random rotation is no
// better and costs d^2. The order of all operations is fixed, so equal input gives equal bits
// everywhere.
//
// Owns its signs (8 d bytes). Immutable: any number of threads. O(d log d) a vector.
//
//   const Rotation rotation(128, 42);
//   rotation.apply(k, y);     // k, y: [128], may be the same array
//   rotation.invert(y, k);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvpool {

class Rotation {
 public:
  // Throws std::invalid_argument unless dim is a positive multiple of 16.
  Rotation(std::size_t dim, std::uint64_t seed);

  std::size_t dim() const { return dim_; }

  // x, y: [dim]; in place where they are the same.
  void apply(const float* x, float* y) const;
  void invert(const float* y, float* x) const;

 private:
  void mix(float* x) const;  // M

  std::size_t dim_;
  std::size_t n_rows_;   // m
  std::size_t row_len_;  // p
  std::vector<float> first_signs_;
  std::vector<float> second_signs_;
};

}  // namespace kvpool
