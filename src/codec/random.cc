#include "kvpool/codec/random.h"

#include <cmath>

#include "portable_math.h"

namespace kvpool {

void fill_signs(SplitMix64 words, std::size_t n, float* signs) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 64 == 0) word = words.next();
    signs[i] = (word >> i % 64 & 1U) != 0U ? -1.0F : 1.0F;
  }
}

float GaussianStream::next() {
  if (has_waiting_) {
    has_waiting_ = false;
    return static_cast<float>(waiting_);
  }
  const double uniform = static_cast<double>((words_.next() >> 11) + 1U) * 0x1p-53;
  const double turns = static_cast<double>(words_.next() >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * internal::portable_log(uniform));
  const internal::CosineSine direction = internal::portable_cosine_sine(turns);
  waiting_ = radius * direction.sine;
  has_waiting_ = true;
  return static_cast<float>(radius * direction.cosine);
}

}  // namespace kvpool
