#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <span>

namespace lopt {

// Element i is added to sum i % kSumLanes, and these are added in their order at the end.
inline constexpr int64_t kSumLanes = 8;

// The sum of f(i) for i < n, in an order that does not depend on where the elements lie.
template <class F>
double SumInLanes(int64_t n, const F& f) {
  std::array<double, kSumLanes> sums = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t j = 0; j < kSumLanes; ++j) sums[j] += f(i + j);
  }
  for (; i < n; ++i) sums[i % kSumLanes] += f(i);
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// The dot product of two spans of one size.
inline double DotInLanes(std::span<const float> x, std::span<const float> y) {
  return SumInLanes(std::ssize(x), [&](int64_t i) { return double{x[i]} * y[i]; });
}

}  // namespace lopt
