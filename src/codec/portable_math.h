// Logarithm, sine and cosine from operations that IEEE 754 rounds exactly, so that every machine
// and compiler gives the same bits. Errors stay below 2 ulp of a double.
#pragma once

namespace kvpool::internal {

// The natural logarithm of a positive normal number.
double portable_log(double x);

struct CosineSine {
  double cosine;
  double sine;
};

// Of 2 * pi * turns, for 0 <= turns < 1.
CosineSine portable_cosine_sine(double turns);

}  // namespace kvpool::internal
