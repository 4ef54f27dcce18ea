#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>

namespace lopt {

// The sum of f(i) for i < n, in an order that does not depend on where the elements lie.
template <class F>
double SumInLanes(int64_t n, const F& f) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) sums[j] += f(i + j);
  }
  for (; i < n; ++i) sums[i % kLanes] += f(i);
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// The dot product of two spans of one size.
inline double DotInLanes(std::span<const float> x, std::span<const float> y) {
  return SumInLanes(std::ssize(x), [&](int64_t i) { return double{x[i]} * y[i]; });
}

}  // namespace lopt
