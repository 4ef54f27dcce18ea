#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "lopt/lopt/network/mean_squares_device.h"

namespace lopt {

// The sum of the squares of x(0), ..., x(count - 1), as the plain implementations form it: squared
// in float32, added up in float64 and rounded to float32. Where that is infinite, squared in
// float64 and not rounded.
template <class Numbers>
double SumOfSquares(int64_t count, const Numbers& x) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = x(i);
    sum += double{value * value};
  }
  const auto rounded = static_cast<float>(sum);
  if (rounded != std::numeric_limits<float>::infinity()) return double{rounded};
  sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x(i)} * double{x(i)};
  return sum;
}

}  // namespace lopt
